"""LSTM and GRU by cuDNN, which only GPUs have: on CPUs its formulas stand in for its kernels."""

import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from unittest import mock

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.placements import PARTIAL, Opaque, Shard
from kdist.spmd.stage import Stage
from replicas import assert_close
from rule_harness import recorded_plans
from tensorflow.python.distribute import values

RNN = sys.modules["keras.src.backend.tensorflow.rnn"]
TYPES = ("CudnnRNNV3", "CudnnRNNBackpropV3")
pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")
ON_GPUS = bool(tf.config.list_physical_devices("GPU"))


def run_layer(mode, is_time_major, x, h, c, params, lengths):
    """Return outputs and last states, as NVIDIA's documentation of `cudnnRNNMode_t` has them."""
    if is_time_major:
        x, h = (tf.transpose(one, (1, 0, 2)) for one in (x, h))
        c = tf.transpose(c, (1, 0, 2)) if mode == "lstm" else c
    units, gates = h.shape[-1], {"lstm": 4, "gru": 3}[mode]
    width = x.shape[-1]
    sizes = [units * width] * gates + [units * units] * gates + [units] * 2 * gates
    parts = tf.split(params, sizes)
    kernels = [tf.reshape(one, (units, -1)) for one in parts[: 2 * gates]]
    h, c = h[:, 0], c[:, 0] if mode == "lstm" else c
    outputs = []
    for time in range(x.shape[1]):
        given = [x[:, time] @ tf.transpose(one) for one in kernels[:gates]]
        kept = [h @ tf.transpose(one) for one in kernels[gates:]]
        given = [a + b for a, b in zip(given, parts[2 * gates : 3 * gates], strict=True)]
        kept = [a + b for a, b in zip(kept, parts[3 * gates :], strict=True)]
        if mode == "lstm":
            i, f, new, o = (a + b for a, b in zip(given, kept, strict=True))
            cell = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(new)
            state = tf.sigmoid(o) * tf.tanh(cell)
        else:
            r, z = (tf.sigmoid(a + b) for a, b in zip(given[:2], kept[:2], strict=True))
            cell, state = c, (1 - z) * tf.tanh(given[2] + r * kept[2]) + z * h
        is_there = (time < lengths)[:, None]
        outputs.append(tf.where(is_there, state, tf.zeros_like(state)))
        h = tf.where(is_there, state, h)
        c = tf.where(is_there, cell, c) if mode == "lstm" else c
    made = [tf.stack(outputs, 1), h[:, None], c[:, None] if mode == "lstm" else c]
    if is_time_major:
        made[:2] = [tf.transpose(one, (1, 0, 2)) for one in made[:2]]
        made[2] = tf.transpose(made[2], (1, 0, 2)) if mode == "lstm" else made[2]
    return made


def compute(op, inputs):
    """Return the results of one of cuDNN's operations, which fails without any sample."""
    mode, is_time_major = op.get_attr("rnn_mode").decode(), op.get_attr("time_major")
    samples = tf.shape(inputs[0])[int(is_time_major)]
    lengths = inputs[4]
    fails = tf.debugging.Assert((samples > 0) & tf.reduce_all(lengths > 0), [samples, lengths])
    with tf.control_dependencies([fails]):
        sources = [tf.identity(one) for one in inputs[:4]]
    for source, whole in zip(sources[:3], op.inputs, strict=False):
        sizes = enumerate(whole.shape)
        source.set_shape([None if axis == is_time_major else size for axis, size in sizes])
    made = run_layer(mode, is_time_major, *sources, lengths)
    kept = tf.reshape(made[0], [-1])
    if op.type == "CudnnRNNV3":
        return [*made, kept, tf.zeros([1], tf.int8)]
    same = tf.debugging.assert_near(inputs[11], kept, message="kept for other samples")
    with tf.control_dependencies([same]):
        slopes = [tf.identity(one) for one in inputs[8:11]]
    return tf.gradients(made, sources, slopes, unconnected_gradients="zero")


@contextmanager
def cudnn(written):
    """Let Keras choose cuDNN and write formulas for its operations, counted by their types."""
    copy = Stage.copy_operation

    def write(stage, op, inputs):
        if op.type not in TYPES:
            return copy(stage, op, inputs)
        written[op.type, stage.runs_once] += 1
        with stage.graph.as_default():
            return compute(op, inputs)

    with (
        mock.patch.object(RNN, "_is_gpu_available", return_value=True),
        nullcontext() if ON_GPUS else mock.patch.object(Stage, "copy_operation", write),
    ):
        yield


@pytest.fixture
def items():
    """Return a function that returns the planned operations of cuDNN."""
    with recorded_plans() as plans:
        yield lambda: [item for item in plans[-1].operations if item.op.type in TYPES]


def make_model():
    model = keras.Sequential(
        [
            keras.Input((2, 2)),
            keras.layers.Masking(),
            keras.layers.LSTM(3, return_sequences=True),
            keras.layers.GRU(1, go_backwards=True),
            keras.layers.BatchNormalization(),  # whose exchange parts layers from their gradients
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def test_layers_train_as_on_one_device(float64, items):
    """The last batch has a single sample, and so one replica has none."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(11, 2, 2)), rng.normal(size=(11, 1))
    x[2:5, 1:] = 0  # masked
    plain = make_model()
    with cudnn(written := Counter()):
        model = kdist.MirroredStrategy(replicas=2).build(make_model)
        model.set_weights(plain.get_weights())
        model.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
    assert all(not item.is_whole for item in items())
    assert Counter(item.op.type for item in items()) == dict.fromkeys(TYPES, 2)
    if not ON_GPUS:
        assert written == {(kind, False): 2 for kind in TYPES}
    with mock.patch.object(RNN, "_is_gpu_available", return_value=False):
        plain.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
    assert_close(model.get_weights(), plain.get_weights(), rtol=1e-9)


@pytest.mark.skipif(ON_GPUS, reason="compares operations with their formulas")
@pytest.mark.parametrize("counts", [(3, 2), (0, 2)])
def test_operations_are_divided_or_whole(items, counts):
    """The gradient reads the values that cuDNN keeps for it, or all is computed whole."""
    rng = np.random.default_rng(5)
    steps, width, units = 2, 3, 2
    params = tf.constant(rng.normal(size=4 * units * (width + units + 2)))
    x = rng.normal(size=(sum(counts), steps, width))
    parts = np.split(x, [counts[0]])

    def layer(x, **options):
        samples = tf.shape(x)[1]
        states = tf.zeros([1, samples, units], tf.float64)
        with tf.GradientTape() as tape:
            tape.watch([x, params])
            made = tf.raw_ops.CudnnRNNV3(
                input=x,
                input_h=states,
                input_c=states,
                params=params,
                sequence_lengths=tf.fill([samples], steps),
                rnn_mode="lstm",
                **options,
            )
            loss = tf.reduce_sum(made.output**2) + tf.reduce_sum(made.output_c)
        return [*tape.gradient(loss, [x, params]), loss], made.reserve_space

    def step(x):
        x = tf.transpose(x, (1, 0, 2))
        (divided, _), (whole, kept) = layer(x), layer(x)
        dropped, _ = layer(x, dropout=1e-9)
        return divided, whole, dropped, tf.reduce_sum(tf.sort(kept))

    strategy = kdist.MirroredStrategy(replicas=2)

    @tf.function(autograph=False)
    def run(*args):
        return strategy.run(step, args=(values.PerReplica(args),))

    with cudnn(written := Counter()):
        *found, kept = run(*map(tf.constant, parts))
    # cuDNN would draw the dropout, for all samples on one replica.
    assert written == {(kind, once): 2 - once for kind in TYPES for once in (False, True)}
    forward, gradient = (
        [item for item in items() if item.op.type == kind and not item.decision.on_one_replica]
        for kind in TYPES
    )
    assert [item.is_whole for item in (*forward, *gradient)] == [False, True] * 2
    *rows, reserved, _ = forward[0].decision.output_placements
    assert all(isinstance(one, Shard) and one.axis == 1 for one in rows)
    assert isinstance(reserved, Opaque)
    assert gradient[0].decision.output_placements[3] == PARTIAL

    given = tf.constant(x.transpose(1, 0, 2))
    states = tf.zeros([1, sum(counts), units], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([given, params])
        lengths = tf.fill([sum(counts)], steps)
        output, _, cell = run_layer("lstm", True, given, states, states, params, lengths)
        loss = tf.reduce_sum(output**2) + tf.reduce_sum(cell)
    expected = [*tape.gradient(loss, [given, params]), loss]
    for made in found:
        assert_close(made, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(kept, tf.reduce_sum(output), rtol=1e-9)
