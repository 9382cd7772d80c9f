"""Estimates against sums by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.finders import measure_memory
from kdist.finders.graph_memory import Step, peak_bytes, steps_of
from kdist.finders.memory import estimate_memory
from kdist.finders.one_try import TryResult
from kdist.finders.report import measured_lines, memory_lines

MIB = 2**20


def read(name, size):
    return Step("Placeholder", (), {name: size})


def test_a_chain_holds_two_tensors_at_a_time():
    steps = [read("a", 10), Step("Conv2D", ("a",), {"b": 20}), Step("Conv2D", ("b",), {"c": 40})]
    steps.append(Step("Conv2D", ("c",), {"d": 5}))
    assert peak_bytes(steps, ["d"]).peak == 60


def test_what_the_backward_pass_reads_is_kept():
    steps = [read("a", 10), Step("MatMul", ("a",), {"b": 20}), Step("MatMul", ("b",), {"c": 40})]
    steps += [Step("Grad", ("c",), {"gc": 40}), Step("Grad", ("gc", "b"), {"gb": 20})]
    steps.append(Step("Grad", ("gb", "a"), {"ga": 10}))
    # a and b wait for their gradients: a + b + c + gc.
    assert peak_bytes(steps, ["ga"]).peak == 10 + 20 + 40 + 40


def test_results_are_kept_to_the_end():
    steps = [read("a", 10), Step("MatMul", ("a",), {"b": 20}), Step("MatMul", ("a",), {"c": 30})]
    assert peak_bytes(steps, ["b", "c"]).peak == 60


def test_written_into_an_input_that_nobody_else_needs():
    relu = Step("Relu", ("a",), {"b": 10})
    assert peak_bytes([read("a", 10), relu], ["b"]).peak == 10
    assert peak_bytes([read("a", 10), relu, Step("MatMul", ("a", "b"), {"c": 1})], ["c"]).peak == 21
    assert peak_bytes([read("a", 10), Step("Relu", ("a",), {"b": 20})], ["b"]).peak == 30


def test_another_name_for_a_tensor_takes_nothing():
    steps = [read("a", 10), Step("Reshape", ("a",), {"b": 10}), Step("MatMul", ("b",), {"c": 5})]
    assert peak_bytes(steps, ["c"]).peak == 15
    several = Step("IdentityN", ("a", "b"), {"c": 10, "d": 20})
    assert peak_bytes([read("a", 10), read("b", 20), several], ["c", "d"]).peak == 30


def test_what_no_result_depends_on_does_not_run():
    steps = [read("a", 10), Step("Fill", (), {"unused": 1000}), Step("MatMul", ("a",), {"b": 5})]
    assert peak_bytes(steps, ["b"]).peak == 15


def test_what_is_not_known():
    steps = [read("a", 10), Step("Where", ("a",), {"b": None}), Step("While", ("b",), {"c": 5})]
    found = peak_bytes(steps, ["c"])
    assert (found.peak, found.unknown) == (10, 2)


def dense(units=512, optimizer="adam"):
    model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(units, use_bias=False)])
    model.compile(optimizer, "mse")
    return model


def regression(samples=64, units=512):
    return lambda: ((np.zeros((samples, 1024)), np.zeros((samples, units))), None)


def test_weights_slots_and_gradients_of_a_dense_layer():
    found = estimate_memory(dense, regression(), batch_size=64)
    weights = 4 * 1024 * 512
    assert found.weights == weights
    assert found.gradients == weights
    # Adam keeps two slots; the rate and the number of steps are a few bytes.
    assert 2 * weights <= found.optimizer < 2 * weights + 100
    x, y = 4 * 64 * 1024, 4 * 64 * 512
    # Most is needed when the gradient is made, from x and from that of the output.
    assert found.activations == x + y
    assert found.total == found.weights + found.optimizer + found.gradients + found.activations
    plain = estimate_memory(lambda: dense(optimizer="sgd"), regression(), batch_size=64)
    assert plain.optimizer < 100
    lines = memory_lines(found)
    assert lines[0] == f"weights                    {weights / MIB:10,.1f} MiB"
    assert lines[-1].startswith("estimate per replica")


def test_activations_grow_with_the_batch_and_the_depth():
    def deep(layers):
        model = keras.Sequential([keras.Input((16,))])
        for _ in range(layers):
            model.add(keras.layers.Dense(500, "tanh", use_bias=False))
        model.compile("sgd", "mse")
        return model

    def data():
        return (np.zeros((2048, 16)), np.zeros((2048, 500))), None

    def estimate(layers, batch):
        return estimate_memory(lambda: deep(layers), data, batch_size=batch)

    few, half, many = estimate(3, 2048), estimate(3, 1024), estimate(6, 2048)
    # The backward pass needs the output of every layer: 500 numbers of 4 bytes a sample. Most is
    # needed as it begins, before there are gradients.
    outputs, weights = 2048 * 500 * 4, 500 * 500 * 4
    assert many.total - few.total == pytest.approx(3 * (outputs + weights), rel=0.02)
    assert few.total - few.weights == pytest.approx(2 * (half.total - half.weights), rel=0.02)


def test_data_sets_and_their_own_batches():
    def batches():
        return tf.data.Dataset.from_tensor_slices(regression()()[0]).batch(16), None

    found = estimate_memory(dense, batches)
    assert found.batch_size == 16
    assert found.activations == estimate_memory(dense, regression(), batch_size=16).activations
    with pytest.raises(UserError, match="batches of its own"):
        estimate_memory(dense, lambda: batches(), batch_size=8)


def test_sentences_of_any_length_are_said():
    def build():
        layers = [keras.layers.Embedding(9, 4), keras.layers.GlobalAveragePooling1D()]
        model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
        model.add(keras.layers.Dense(1))
        model.compile("sgd", "mse")
        return model

    def data(length):
        pairs = tf.data.Dataset.from_tensor_slices((tf.zeros((8, 5), "int32"), tf.zeros((8, 1))))
        return pairs.padded_batch(4, padded_shapes=([length], [1]))

    found, padded = (estimate_memory(build, lambda n=n: data(n)) for n in (None, 5))
    assert (found.any_length, padded.any_length) == (True, False)
    assert found.activations < padded.activations
    assert "do not say how long a sample is; pad to a fixed length" in memory_lines(found)[-1]
    assert not any("pad" in line for line in memory_lines(padded))


def test_batch_norms_are_those_of_a_strategy():
    def build():
        model = keras.Sequential([keras.Input((1024,)), keras.layers.BatchNormalization()])
        model.add(keras.layers.Dense(512))
        model.compile("sgd", "mse")
        return model

    found = estimate_memory(build, regression(), batch_size=64)
    assert found.unknown == 0
    assert found.activations >= 2 * 4 * 64 * 1024  # the input and what is normalized


class Own(keras.Model):
    """Keras's step, by hand."""

    def train_step(self, data):
        x, y = data if isinstance(data, tuple) else (data, 0.0)
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def own():
    inputs = keras.Input((1024,))
    model = Own(inputs, keras.layers.Dense(512, use_bias=False)(inputs))
    model.compile("adam")
    return model


def test_a_step_of_the_models_own():
    plain = estimate_memory(dense, regression(), batch_size=64)
    found = estimate_memory(own, regression(), batch_size=64)
    for part in ("weights", "optimizer", "gradients"):
        assert getattr(found, part) == getattr(plain, part)
    # Adam computes with a copy of a moment beside the gradient.
    assert plain.activations <= found.activations <= plain.activations + 2 * found.weights
    without_targets = estimate_memory(
        own, lambda: ((np.zeros((8, 1024)), None), None), batch_size=2
    )
    assert without_targets.weights == found.weights


def batches_of_16():
    return tf.data.Dataset.from_tensor_slices(regression()()[0]).batch(16), None


def test_the_datas_own_batches_are_halved_to_be_measured(monkeypatch):
    asked = []
    monkeypatch.setattr(
        measure_memory,
        "run_in_process",
        lambda tried: asked.append(tried.batch_size) or TryResult(works=True, peak=1),
    )
    half, whole, _ = measure_memory.measure_memory(own, batches_of_16)
    assert asked == [half.batch_size, whole.batch_size] == [8, 16]
    assert half == estimate_memory(own, regression(), batch_size=8)


def test_a_graph_that_is_called_is_counted():
    """Two tensors of 100 numbers at a time, of 10 that it is given and 1 that it returns."""

    @tf.function
    def inner(x):
        large = tf.tile(x, [10])
        return tf.reduce_sum(tf.cumsum(large))

    graph = tf.function(lambda x: inner(x) + 1.0).get_concrete_function(tf.TensorSpec([10])).graph
    (call,) = (step for step in steps_of(graph) if "PartitionedCall" in step.kind)
    assert 800 <= call.within < 900
    assert call.unknown == 0
    (result,) = (tensor.name for tensor in graph.outputs)
    assert 840 <= peak_bytes(steps_of(graph), [result]).peak < 960


def test_what_is_refused():
    with pytest.raises(UserError, match="does not take the data"):
        estimate_memory(dense, lambda: ((np.zeros((8, 3)), np.zeros((8, 512))), None))
    with pytest.raises(UserError, match="batch_size"):
        estimate_memory(dense, regression(), batch_size=0)
    with pytest.raises(UserError, match="received int"):
        estimate_memory(3, regression())
    with pytest.raises(UserError, match="received ndarray"):
        estimate_memory(dense, np.zeros(3))


def test_measured_beside_the_estimate():
    half = estimate_memory(dense, regression(), batch_size=32)
    whole = estimate_memory(dense, regression(), batch_size=64)
    per_sample = (whole.total - half.total) / 32
    low, high = (
        TryResult(works=True, peak=int(100 * MIB + one.batch_size * 2 * per_sample))
        for one in (half, whole)
    )
    lines = measured_lines(half, whole, (low, high))
    assert "estimated (-50%)" in lines[1]
    failed = TryResult(works=False, why="memory")
    assert measured_lines(half, whole, (low, failed)) == ["measured: not enough memory"]
    unknown = TryResult(works=True)
    assert measured_lines(half, whole, (low, unknown)) == ["measured: unknown on this system"]
