"""Operations that are counted, and the steps per execution."""

import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.models import WideResNet
from kdist.strategies import steps_per_execution as chosen
from kdist.strategies.steps_per_execution import steps_per_execution, training_flops

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def convolution_flops(model):
    """Two for each multiplication of a convolution or dense layer, by their shapes alone."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            positions = np.prod(layer.output.shape[1:-1], dtype=int)
            total += 2 * positions * np.prod(layer.kernel.shape)
    return total


def test_three_passes_of_the_labs_network():
    """11.079 GFLOP a training image of WRN-16-10, of which convolutions are nearly all."""
    model = WideResNet(16, 10, input_shape=(28, 28, 1), classes=10)
    by_shapes = 3 * convolution_flops(model)
    assert by_shapes / 1e9 == pytest.approx(11.079, abs=1e-3)
    assert by_shapes <= training_flops(model) <= 1.01 * by_shapes


def test_several_inputs_by_name():
    inputs = {name: keras.Input((50,), name=name) for name in ("b", "a")}
    x = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
    model = keras.Model(inputs, keras.layers.Dense(20, use_bias=False)(x))
    assert training_flops(model) == 3 * 2 * 100 * 20


class Subclassed(keras.Model):
    def call(self, x):
        return x


@pytest.mark.parametrize(
    "model",
    [
        Subclassed,
        lambda: keras.Sequential([keras.Input((None, None, 3)), keras.layers.Conv2D(2, 3)]),
        lambda: keras.Sequential([keras.Input((9, 3)), keras.layers.LSTM(2)]),
    ],
)
def test_what_cannot_be_counted_is_not_a_number(model):
    assert math.isnan(training_flops(model()))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_dense_layer_under_a_strategy(replicas):
    model = kdist.MirroredStrategy(replicas=replicas).build(
        lambda: keras.Sequential([keras.Input((50,)), keras.layers.Dense(20, use_bias=False)])
    )
    assert training_flops(model) == 3 * 2 * 50 * 20


def dense(units):
    return keras.Sequential([keras.Input((units,)), keras.layers.Dense(units)])


def compiled(strategy, steps_per_execution, model=lambda: dense(4)):
    with strategy.scope():
        model = model()
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=steps_per_execution)
    return model


class Executions(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(batch)


@pytest.mark.parametrize(
    ("units", "global_batch", "steps"),
    [
        (8, 32, 128),  # as many as there may be
        # 3 * 2 * 512 * 512 operations per sample: 50.3 million per step, 0.1 s at 2e10
        # per second hold 39.7 of them. A bias adds 512 more.
        (512, 32, 40),
        (512, 320, 4),
        (2048, 320, 1),
    ],
)
def test_a_tenth_of_a_second_of_arithmetic(units, global_batch, steps):
    assert steps_per_execution(dense(units), global_batch, on_gpus=False) == steps


def test_a_gpu_takes_more_steps_and_an_unknown_number_of_operations_one(monkeypatch):
    assert steps_per_execution(dense(2048), 320, on_gpus=True) == pytest.approx(25, abs=1)
    recurrent = keras.Sequential([keras.Input((3, 2)), keras.layers.GRU(2)])
    for model, global_batch in ((recurrent, 32), (dense(4), None)):
        assert steps_per_execution(model, global_batch, on_gpus=False) == 1

    def fails(model):
        raise ValueError("a fixed batch")

    monkeypatch.setattr(chosen, "training_flops", fails)
    assert steps_per_execution(dense(4), 32, on_gpus=False) == 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_auto_trains_as_one_step_after_the_other(replicas, float64):
    x = np.random.default_rng(0).normal(size=(27, 4))
    weights, ends = [], []
    for steps in (1, "auto"):
        keras.utils.set_random_seed(0)
        model = compiled(kdist.MirroredStrategy(replicas=replicas), steps)
        seen = Executions()
        model.fit(x, x, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[seen])
        model.evaluate(x, x, batch_size=4, verbose=0)
        assert model.predict(x, batch_size=4, verbose=0).shape == (27, 4)
        weights.append(model.get_weights())
        ends.append(len(seen.ends))
    assert ends == [14, 2]  # seven steps an epoch; all of them in one execution
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_validation_with_other_batches_changes_nothing():
    model = compiled(kdist.MirroredStrategy(replicas=1), "auto", lambda: dense(512))
    x = np.zeros((96, 512), "float32")
    options = {"validation_data": (x[:7], x[:7]), "validation_batch_size": 1}
    model.fit(x, x, batch_size=32, epochs=3, verbose=0, **options)
    assert model.steps_per_execution == 3


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_more_steps_than_were_asked_for(replicas):
    model = compiled(kdist.MirroredStrategy(replicas=replicas), "auto", lambda: dense(512))
    x = np.arange(512 * 32, dtype="float32").reshape(32, 512) / 1e6
    endless = tf.data.Dataset.from_tensor_slices((x, x)).batch(32).repeat()
    counts = Batches()
    options = {"validation_data": endless, "validation_steps": 3, "callbacks": [counts]}
    model.fit(endless, steps_per_epoch=50, epochs=2, verbose=0, shuffle=False, **options)
    assert int(model.optimizer.iterations.numpy()) == 100
    assert counts.tests == [0, 1, 2] * 2
    assert model.steps_per_execution == 25  # the largest divisor of 50 that is at most 40


def test_the_batch_is_known_behind_what_it_is_zipped_with():
    x = np.zeros((96, 512), "float32")
    batches = tf.data.Dataset.from_tensor_slices((x, x)).batch(32)
    zipped = tf.data.Dataset.zip(batches, tf.data.Dataset.range(3)).map(lambda pair, _: pair)
    model = compiled(kdist.MirroredStrategy(replicas=1), "auto", lambda: dense(512))
    model.fit(zipped, verbose=0, shuffle=False)
    assert model.steps_per_execution == 3

    def blocks():
        yield from x.reshape(3, 32, 512)

    spec = tf.TensorSpec((None, 512), tf.float32)
    unknown = tf.data.Dataset.from_generator(blocks, output_signature=spec).map(lambda x: (x, x))
    by_two = tf.data.Dataset.range(6).batch(2)
    for one in (batches, unknown):  # whose batch is the step's?
        both = tf.data.Dataset.zip(one, by_two).map(lambda pair, _: pair)
        cardinality = tf.data.experimental.assert_cardinality(3)
        model.fit(both.apply(cardinality), verbose=0, shuffle=False)
        assert model.steps_per_execution == 1


class Batches(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.tests = []

    def on_test_batch_end(self, batch, logs=None):
        self.tests.append(batch)


def test_a_callback_may_evaluate_and_predict():
    model = compiled(kdist.MirroredStrategy(replicas=1), "auto", lambda: dense(512))
    x = np.zeros((96, 512), "float32")
    seen = []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(self.model.evaluate(x, x, batch_size=96, verbose=0))
            seen.append(self.model.predict(x, batch_size=1, verbose=0).shape)

    model.fit(x, x, batch_size=32, epochs=2, verbose=0, callbacks=[Looks()])
    assert seen == [0, (96, 512)] * 2
    assert model.steps_per_execution == 3


def test_the_arithmetic_is_counted_once(monkeypatch):
    counted = []
    count = lambda model: counted.append(model) or 1e9  # noqa: E731
    monkeypatch.setattr(chosen, "training_flops", count)
    model = compiled(kdist.MirroredStrategy(replicas=1), "auto")
    for _ in range(3):
        model.fit(np.zeros((16, 4)), np.zeros((16, 4)), batch_size=4, verbose=0)
        model.evaluate(np.zeros((16, 4)), np.zeros((16, 4)), batch_size=4, verbose=0)
    assert counted == [model]


def test_another_batch_size_is_chosen_for_anew():
    model = compiled(kdist.MirroredStrategy(replicas=1), "auto", lambda: dense(512))
    x = np.zeros((320 * 5, 512), "float32")
    chosen = []
    for batch in (32, 320):
        model.fit(x, x, batch_size=batch, verbose=0)
        chosen.append(model.steps_per_execution)
    assert chosen == [40, 4]


def test_a_number_stays_as_it_is_and_compiling_again_ends_auto():
    for steps, expected in ((3, 3), ("auto", 1)):
        model = compiled(kdist.MirroredStrategy(replicas=1), steps)
        if steps == "auto":
            model.compile("sgd", "mse")
        model.fit(np.zeros((16, 4)), np.zeros((16, 4)), batch_size=4, verbose=0)
        assert model.steps_per_execution == expected
