"""Losses, metrics and types of users' own that are no parity cases."""

import functools

import kdist
import keras
import numpy as np
import pytest
import samples
import small_models
import tensorflow as tf
from kdist.errors import UserError
from keras import layers, ops
from loss_cases import squared_error
from replicas import assert_close, fit, per_replica, stock_mirrored

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def trained(replicas, make, data, **options):
    """Return a model that is trained on replicas, or without a strategy by `None`."""
    strategy = replicas and kdist.MirroredStrategy(replicas=replicas)
    options |= {"optimizer": lambda: keras.optimizers.Adam(0.01), "batch_size": 8, "epochs": 2}
    return fit(strategy, make, *data, **options)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_a_loss_of_structures_that_gives_one_number():
    class OfBoth(keras.losses.Loss):
        def call(self, y_true, y_pred):
            errors = squared_error(y_true["kind"], y_pred["kind"])
            return ops.sqrt(ops.mean(errors)) * ops.mean(ops.square(y_pred["size"]))

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return OfBoth()(y, y_pred)

    def make():
        model = small_models.dict_heads()
        return Own(model.inputs, model.output)

    several, expected = (trained(n, make, samples.heads(27), loss=None) for n in (2, None))
    assert_close(several.get_weights(), expected.get_weights(), rtol=0, atol=1e-9)
    assert_close(several.history.history, expected.history.history, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_history_holds_numbers_where_a_metric_gives_its_variable():
    class Total(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="total")
            self.total = self.add_variable((), "zeros")

        def update_state(self, y, predictions, sample_weight=None):
            self.total.assign(self.total + ops.cast(ops.shape(predictions)[0], self.dtype))

        def result(self):
            return self.total

    options = {"loss": "sparse_categorical_crossentropy", "metrics": [Total()]}
    model = trained(2, small_models.mlp, samples.classes(27), **options)
    assert model.history.history["total"] == [27, 27]


def decorated(step):
    """Decorate a step without `functools.wraps`."""
    return lambda model, data: step(model, data)


class Partial:
    """Give a model a `functools.partial` for its step, which has neither a name nor a model."""

    def __init__(self, step):
        self.step = step

    def __get__(self, model, _=None):
        return functools.partial(self.step, model)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("decorate", [tf.function, decorated, Partial])
@pytest.mark.parametrize("runs_eagerly", [False, True])
def test_a_decorated_step_is_divided_like_the_step(decorate, runs_eagerly, monkeypatch):
    class Own(keras.Model):
        @decorate
        def train_step(self, data):
            return keras.Model.train_step(self, data) | {"rows": data[0][:, :2]}

    def make():
        model = small_models.mlp()
        return Own(model.inputs, model.output)

    steps, run_step = [], kdist.MirroredStrategy.run_step

    def record(strategy, step, *args):
        steps.append(step)
        return run_step(strategy, step, *args)

    monkeypatch.setattr(kdist.MirroredStrategy, "run_step", record)
    options = {"loss": "sparse_categorical_crossentropy", "run_eagerly": runs_eagerly}
    options["jit_compile"] = not runs_eagerly
    several, one = (trained(n, make, samples.classes(27), **options) for n in (2, None))
    assert_close(several.get_weights(), one.get_weights(), rtol=0, atol=1e-9)
    assert_close(several.history.history, one.history.history, rtol=0, atol=1e-6)
    assert several.history.history["rows"][0].shape == (3, 2)
    assert {(step.splits, step.jit_compile) for step in steps} == {(True, not runs_eagerly)}


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_loss_in_the_scope_is_that_of_the_batch(replicas):
    """Such as in a callback, if `fit` is called in the scope."""
    found = []

    class Losses(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            found.append(self.model.compute_loss(x, y, self.model(x)))
            found.append(keras.losses.MeanSquaredError()(y, self.model(x)))
            found.append(self.model.test_on_batch(x, y))

    x, y = np.ones((7, 3)), np.arange(7.0)[:, None]
    with kdist.MirroredStrategy(replicas=replicas).scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(x, y, verbose=0, callbacks=[Losses()])
    assert_close(found, [model.evaluate(x, y, verbose=0)] * 3, rtol=1e-6)


@pytest.mark.slow
def test_float8_trains_as_on_one_replica():
    """Scales and largest amounts are no gradients, though Keras hands them to the optimizer."""

    def make():
        inputs = keras.Input((6,))
        x = layers.Dense(16, activation="tanh", dtype="float8_from_float32")(inputs)
        return keras.Model(inputs, small_models.classes()(x))

    options = {"loss": "sparse_categorical_crossentropy", "jit_compile": False}
    data = samples.classes(27)
    one, several = (trained(n, make, data, **options) for n in (None, 3))
    for variable, other in zip(one.variables, several.variables, strict=True):
        tolerance = 1e-5 if "scale" in variable.path or "amax" in variable.path else 2e-2
        np.testing.assert_allclose(other, variable, rtol=tolerance, atol=tolerance)


def test_the_mean_over_replicas_of_whole_numbers_is_tensorflows():
    for strategy in (stock_mirrored(), kdist.MirroredStrategy(replicas=2)):
        assert int(strategy.reduce("MEAN", per_replica(strategy, [0, 2]), axis=None)) == 1


def test_a_reduction_without_a_meaning_is_refused():
    strategy = kdist.MirroredStrategy(replicas=2)
    with pytest.raises(UserError, match=r"'SUM' or 'MEAN', received 'FOO'"):
        strategy.reduce("FOO", tf.ones(2), axis=None)


def test_data_that_are_no_dataset_are_refused():
    strategy = kdist.MirroredStrategy(replicas=2)
    with pytest.raises(UserError, match=r"received ndarray, expected a tf\.data\.Dataset"):
        strategy.experimental_distribute_dataset(np.ones((4, 2)))
