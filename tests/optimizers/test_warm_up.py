"""Warm-ups of learning rates, and of the average of weights."""

import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from kdist._upstream.optimizers import averaging_optimizers
from kdist.callbacks import Checkpoint
from kdist.errors import UserError
from kdist.optimizers import WarmUp, warm_up_ema
from keras import optimizers
from replicas import assert_close, assert_equal


@given(st.floats(1e-4, 1), st.integers(0, 20), st.integers(0, 60))
def test_a_constant_rate_is_reached_on_a_line(rate, steps, step):
    expected = rate * (min(step / steps, 1) if steps else 1)
    assert float(WarmUp(rate, steps=steps)(step)) == pytest.approx(expected, rel=1e-5)


def test_the_schedule_starts_when_the_warm_up_ends():
    schedule = WarmUp(keras.optimizers.schedules.CosineDecay(0.4, 100), steps=10)
    rates = [float(schedule(step)) for step in (0, 5, 10, 60, 110)]
    cosine = [0.4 * (1 + math.cos(math.pi * step / 100)) / 2 for step in (0, 50, 100)]
    np.testing.assert_allclose(rates, [0, 0.2, *cosine], atol=1e-7)


def test_saved_with_its_optimizer():
    decay = keras.optimizers.schedules.CosineDecay(0.4, 100)
    optimizer = keras.optimizers.SGD(WarmUp(decay, steps=10))
    read = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    for step in (0, 5, 50):
        read.iterations.assign(step)
        optimizer.iterations.assign(step)
        assert float(read.learning_rate) == float(optimizer.learning_rate)


@pytest.mark.parametrize("values", [{"steps": -1}, {"steps": 1.5}])
def test_negative_values_are_refused(values):
    with pytest.raises(UserError):
        WarmUp(0.1, **values)
    for rate in (-0.1, float("nan"), "0.1", None):
        with pytest.raises(UserError):
            WarmUp(rate, steps=1)


X = np.random.default_rng(0).normal(size=(23, 5))
Y = np.arange(23) % 3


def average_of(momentum=0.9999):
    return warm_up_ema(optimizers.SGD(0.3, momentum=0.9, use_ema=True, ema_momentum=momentum))


def compiled(optimizer, replicas=None):
    keras.utils.set_random_seed(3)
    strategy = (
        kdist.MirroredStrategy(replicas=replicas) if replicas else tf.distribute.get_strategy()
    )
    with strategy.scope():
        layers = [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(3)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer() if callable(optimizer) else optimizer, loss)
    return model


def averages(model):
    return [variable.numpy() for variable in model.optimizer._model_variables_moving_average]


class Weights(keras.callbacks.Callback):
    """Keeps the weights after every step."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(self.model.get_weights())


def trained(model, epochs=3, callbacks=(), **options):
    model.fit(
        X, Y, batch_size=5, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks, **options
    )
    return model


def by_hand(steps, momentum):
    """The average of the weights after every step, by the documented rule."""
    average = steps[0]
    for at, weights in enumerate(steps):
        kept = min(momentum, (1 + at) / (10 + at)) if at else 0.0
        average = [kept * a + (1 - kept) * w for a, w in zip(average, weights, strict=True)]
    return average


def of_tensorflow(steps, momentum):
    """`tf.train.ExponentialMovingAverage`, told the number of steps before each."""
    number = tf.Variable(0)
    average = tf.train.ExponentialMovingAverage(momentum, num_updates=number)
    variables = [tf.Variable(weight) for weight in steps[0]]
    for at, weights in enumerate(steps):
        number.assign(at)
        for variable, weight in zip(variables, weights, strict=True):
            variable.assign(weight)
        average.apply(variables)  # begins with the first weights
    return [average.average(variable).numpy() for variable in variables]


@pytest.mark.parametrize("momentum", [0.9999, 0.5, 0.0])
def test_the_average_is_that_of_the_rule_and_tensorflows(momentum, float64):
    weights = Weights()
    model = trained(compiled(average_of(momentum)), callbacks=[weights])
    assert len(weights.steps) == 15
    assert_close(averages(model), by_hand(weights.steps, momentum), rtol=1e-10)
    # TensorFlow's momentum is a float32.
    assert_close(averages(model), of_tensorflow(weights.steps, momentum), rtol=1e-5)
    # `fit` ends with the averages as weights, as for every average of Keras's.
    assert_equal(model.get_weights(), averages(model))


def test_replicas_average_as_one(float64):
    def result(replicas, steps=1):
        model = compiled(average_of, replicas)
        model.steps_per_execution = steps
        swap = keras.callbacks.SwapEMAWeights()
        trained(model, epochs=2, callbacks=[swap], validation_data=(X[:7], Y[:7]))
        return [*averages(model), *model.get_weights(), model.history.history["val_loss"]]

    expected = result(1)
    for several in (result(2, steps=2), result(3)):
        assert_close(several, expected, rtol=0, atol=1e-13)


def test_evaluation_is_of_the_average(float64):
    swapped, plain = Weights(), Weights()
    with_average = trained(
        compiled(average_of()),
        callbacks=[keras.callbacks.SwapEMAWeights(), swapped],
        validation_data=(X, Y),
    )
    trained(compiled(optimizers.SGD(0.3, momentum=0.9)), callbacks=[plain])
    # Training continues from the weights.
    assert_close(swapped.steps[-1], plain.steps[-1], rtol=1e-12)
    model = compiled(optimizers.SGD())
    model.set_weights(by_hand(plain.steps, 0.9999))
    expected = model.evaluate(X, Y, batch_size=5, verbose=0)
    assert with_average.history.history["val_loss"][-1] == pytest.approx(expected, rel=1e-12)


def test_optimizers_within_others():
    scaled = warm_up_ema(
        optimizers.LossScaleOptimizer(optimizers.SGD(0.1, use_ema=True, ema_momentum=0.99))
    )
    several = optimizers.MultiOptimizer(
        optimizers.OptimizerMap(
            optimizers.SGD(0.1, use_ema=True, ema_momentum=0.99),
            {"dense_.*/kernel": optimizers.Adam(0.01)},
        )
    )
    for optimizer in (scaled, warm_up_ema(several)):
        weights = Weights()
        model = trained(compiled(optimizer), callbacks=[weights])
        (inner,) = averaging_optimizers(optimizer)
        order = {id(variable): at for at, variable in enumerate(model.variables)}
        expected = by_hand(weights.steps, 0.99)
        for variable, average in zip(
            inner._trainable_variables, inner._model_variables_moving_average, strict=True
        ):
            np.testing.assert_allclose(average, expected[order[id(variable)]], rtol=1e-5, atol=1e-6)


def test_a_resumed_training_averages_on(tmp_path):
    def run(epochs, optimizer=average_of):
        return trained(
            compiled(optimizer),
            epochs=epochs,
            callbacks=[keras.callbacks.SwapEMAWeights(), Checkpoint(tmp_path / "one", verbose=0)],
            validation_data=(X, Y),
        )

    run(1)
    resumed = run(3)
    whole = trained(
        compiled(average_of),
        epochs=3,
        callbacks=[keras.callbacks.SwapEMAWeights()],
        validation_data=(X, Y),
    )
    assert resumed.history.history == whole.history.history
    assert_equal(resumed.get_weights(), whole.get_weights())

    def cold():
        return optimizers.SGD(0.3, momentum=0.9, use_ema=True, ema_momentum=0.9999)

    with pytest.raises(UserError, match="ema_warmup"):
        run(5, cold)


def test_an_optimizer_without_an_average_is_refused():
    with pytest.raises(UserError, match="Adam, which keeps no average"):
        warm_up_ema(optimizers.Adam())


def test_beyond_the_warm_up_it_is_keras_bit_for_bit():
    def begun_at(step, warm):
        sgd = optimizers.SGD(0.3, use_ema=True, ema_momentum=0.9)
        model = compiled(warm_up_ema(sgd) if warm else sgd)
        sgd.build(model.trainable_variables)
        sgd.iterations.assign(step)
        return averages(trained(model, epochs=1))

    assert_equal(begun_at(81, True), begun_at(81, False))
    assert not np.array_equal(begun_at(5, True)[0], begun_at(5, False)[0])
