"""Losses, metrics and types of users' own that are no parity cases."""

import kdist
import keras
import numpy as np
import pytest
import samples
import small_models
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
