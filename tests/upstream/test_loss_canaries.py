"""What stock Keras does to losses on several replicas."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from stock_models import linear, of_layer, on_replicas, with_test_step

ROWS = np.array([[1.0], [2.0], [3.0], [9.0]])


def test_losses_are_divided_by_replicas_rounded_to_float32(stock):
    """1/R, whatever the parts' sizes."""
    loss = keras.losses.MeanSquaredError(dtype="float64")
    three = tf.distribute.MirroredStrategy(
        [f"/cpu:{i}" for i in range(3)], tf.distribute.ReductionToOneDevice()
    )
    parts = on_replicas(three, lambda: loss(np.ones((2, 1)), np.zeros((2, 1))))
    assert sum(parts) != 1
    assert sum(parts) == pytest.approx(1, abs=1e-7)


def test_averaged_losses_are_divided_by_replicas(stock):
    """Of the last batch's samples, two are on replica 0; Keras logs the mean over replicas."""
    rows = np.array([[0]] * 4 + [[2], [3], [9]], "float32")

    def step(model, data):
        average = tf.nn.compute_average_loss(data[:, 0])
        return {"average": average, "scaled": tf.nn.scale_regularization_loss(tf.constant(4.0))}

    found = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2)):
        model = with_test_step(strategy, step)
        logs = model.evaluate(rows, batch_size=4, verbose=0, return_dict=True)
        found.append([logs["average"], logs["scaled"]])
    assert found == [pytest.approx([(2.5 + 9) / 2 / 2, 2]), pytest.approx([14 / 3, 4])]


def test_uneven_batches_are_weighted_evenly(stock):
    # The last batch has three samples, two of them on replica 0: the slope's gradient is
    # -2 * 6 * 6 / 3, but stock Keras takes the mean of 0 and -2 * 6 * 6.
    x = np.array([[0.0]] * 6 + [[6.0]])
    weights = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2)):
        model = linear(strategy)
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
        weights.append(float(model.get_weights()[0][0, 0]))
    assert weights == pytest.approx([0.1 * 72 / 2, 0.1 * 72 / 3])


def test_losses_and_metrics_that_are_not_means_are_averaged(stock):
    """The parts' values averaged, each counting alike."""
    loss = lambda y, p: keras.ops.max(y) + 0 * keras.ops.sum(p)  # noqa: E731
    model = linear(stock, loss=loss, metrics=[lambda y, p: keras.ops.max(y)])
    found = model.evaluate(ROWS, ROWS, verbose=0, return_dict=True)
    assert [*found.values()] != pytest.approx([9, 9])
    assert min(found.values()) == pytest.approx((2 + 9) / 2)
    model = linear(
        kdist.MirroredStrategy(replicas=2), loss=loss, metrics=[lambda y, p: keras.ops.max(y)]
    )
    assert model.evaluate(ROWS, ROWS, verbose=0) == pytest.approx([9, 9])


class RootOfMean(keras.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.sqrt(keras.ops.mean(keras.ops.square(y - y_pred)))


def test_a_custom_compute_loss_is_averaged_over_replicas(stock):
    losses = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2)):
        with strategy.scope():
            model = RootOfMean(
                [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")]
            )
            model.compile("sgd")
        losses.append(model.evaluate(ROWS, ROWS, verbose=0, return_dict=True)["loss"])
    roots = [np.sqrt(np.mean(np.square(part))) for part in (ROWS[:2], ROWS[2:], ROWS)]
    # Stock Keras multiplies by 2 what it takes for half of the loss.
    assert losses == pytest.approx([roots[0] + roots[1], roots[2]])


class AddsItsSum(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.sum(x))
        return x


def test_added_sums_are_averaged_over_replicas(stock):
    losses = [
        of_layer(strategy, AddsItsSum).evaluate(ROWS, verbose=0)
        for strategy in (stock, kdist.MirroredStrategy(replicas=2))
    ]
    assert losses == pytest.approx([ROWS.sum() / 2, ROWS.sum()])
