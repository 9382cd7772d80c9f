"""What users write themselves, beyond what the parity cases compare."""

import custom_cases
import kdist
import keras
import numpy as np
import pytest
import samples
import small_models
import tensorflow as tf
from keras import layers, ops

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def replicated(replicas):
    return kdist.MirroredStrategy(replicas=replicas)


def trained(strategy, make, data, **options):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = make()
        model.compile(**{"optimizer": keras.optimizers.Adam(0.01), **options})
    history = model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return model, history


def check(make, data, replicas, **options):
    """Several replicas against none: weights to rounding, the history too."""
    expected, before = trained(tf.distribute.get_strategy(), make, data, **options)
    got, after = trained(replicated(replicas), make, data, **options)
    for one, other in zip(expected.get_weights(), got.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-9)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_a_connectionist_loss_with_a_replica_that_has_no_sample():
    def make():
        inputs = keras.Input((4, 2))
        return keras.Model(inputs, layers.LSTM(5, return_sequences=True)(inputs))

    x, _ = samples.series(9)
    check(make, (x, np.ones((9, 2), "int32")), 2, loss=keras.losses.CTC())


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_a_loss_of_a_value_a_sample_from_the_whole_batch_takes_gathered_rows():
    def in_batch_softmax(y, predictions):
        everyone = predictions
        first = ops.shape(everyone)[0] - ops.shape(everyone)[0]
        logits = ops.matmul(predictions, ops.transpose(everyone)) + ops.cast(first, "float64")
        return ops.logsumexp(logits, axis=-1) - ops.sum(ops.square(predictions), axis=-1)

    check(small_models.mlp, samples.classes(25), 3, loss=in_batch_softmax)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_a_loss_of_structures_that_gives_one_number():
    class OfBoth(keras.losses.Loss):
        def call(self, y_true, y_pred):
            errors = custom_cases.squared_errors(y_true["kind"], y_pred["kind"])
            return ops.sqrt(ops.mean(errors)) * ops.mean(ops.square(y_pred["size"]))

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return OfBoth()(y, y_pred)

    def make():
        model = small_models.dict_heads()
        return Own(model.inputs, model.output)

    check(make, samples.heads(27), 2)


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
    _, history = trained(replicated(2), small_models.mlp, samples.classes(27), **options)
    assert history["total"] == [27, 27]


@pytest.mark.slow
def test_float8_trains_as_on_one_replica():
    """Scales and largest amounts are no gradients, though Keras hands them to the optimizer."""

    def make():
        inputs = keras.Input((6,))
        x = layers.Dense(16, activation="tanh", dtype="float8_from_float32")(inputs)
        return keras.Model(inputs, small_models.classes()(x))

    options = {"loss": "sparse_categorical_crossentropy", "jit_compile": False}
    data = samples.classes(27)
    one, _ = trained(tf.distribute.get_strategy(), make, data, **options)
    several, _ = trained(replicated(3), make, data, **options)
    for variable, other in zip(one.variables, several.variables, strict=True):
        tolerance = 1e-5 if "scale" in variable.path or "amax" in variable.path else 2e-2
        np.testing.assert_allclose(other, variable, rtol=tolerance, atol=tolerance)


def test_the_mean_over_replicas_of_whole_numbers_is_tensorflows():
    strategy = replicated(2)
    stock = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice()
    )
    means = []
    for one in (stock, strategy):
        values = one.experimental_distribute_values_from_function(
            lambda context: tf.constant(2 * context.replica_id_in_sync_group)
        )
        means.append(int(one.reduce("MEAN", values, axis=None)))
    assert means == [1, 1]
