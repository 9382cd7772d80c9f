"""Replicas without a sample, in float32: where oneDNN computes."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.empty_inputs import onednn_is_on
from replicas import assert_close, fit

layers = keras.layers

CONVOLUTIONS = {
    "plain": ((8, 8, 2), lambda: layers.Conv2D(4, 3, padding="same")),
    "without bias": ((8, 8, 2), lambda: layers.Conv2D(4, 3, use_bias=False)),
    "strides": ((8, 8, 2), lambda: layers.Conv2D(4, 3, strides=2, activation="relu")),
    "of a series": ((8, 2), lambda: layers.Conv1D(4, 3)),
    "of volumes": ((8, 8, 8, 2), lambda: layers.Conv3D(4, 3)),
    "depthwise": ((8, 8, 2), lambda: layers.DepthwiseConv2D(3, depth_multiplier=2)),
    "separable": ((8, 8, 2), lambda: layers.SeparableConv2D(4, 3)),
    "transposed": ((8, 8, 2), lambda: layers.Conv2DTranspose(4, 3, strides=2)),
}


def trained(replicas, shape, layer, samples=9):
    """Weights, losses and a score; of 9 samples in batches of 8 the last has one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(samples, *shape)).astype("float32"), rng.integers(0, 3, samples)

    def model():
        inputs = keras.Input(shape)
        features = layers.BatchNormalization()(layer()(inputs))
        outputs = layers.Dense(3, activation="softmax")(layers.Flatten()(features))
        return keras.Model(inputs, outputs)

    strategy = kdist.MirroredStrategy(replicas=replicas)
    options = {"optimizer": keras.optimizers.SGD(0.05), "loss": "sparse_categorical_crossentropy"}
    model = fit(strategy, model, x, y, batch_size=8, epochs=2, **options)
    score = model.evaluate(x[:1], y[:1], verbose=0)
    losses = model.history.history["loss"]
    return [*model.get_weights(), losses, score]


SLOW = ("of a series", "separable", "strides", "without bias")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CONVOLUTIONS],
)
def test_convolutions_of_no_samples(name):
    one, two = (trained(replicas, *CONVOLUTIONS[name]) for replicas in (1, 2))
    assert_close(two, one, atol=2e-4)


def test_saturated_outputs_are_as_on_one_replica():
    """Keras takes the logits behind a softmax: its probabilities alone round to 0 and 1."""
    shape, _ = CONVOLUTIONS["plain"]

    def make():
        large = keras.initializers.RandomNormal(stddev=100.0)
        made = [layers.Conv2D(4, 3, kernel_initializer=large), layers.Flatten()]
        return keras.Sequential([keras.Input(shape), *made, layers.Dense(3, "softmax")])

    def losses(replicas):
        x = np.random.default_rng(0).normal(size=(9, *shape)).astype("float32")
        options = {"loss": "sparse_categorical_crossentropy", "batch_size": 8}
        options["optimizer"] = keras.optimizers.SGD(0.0)
        strategy = kdist.MirroredStrategy(replicas=replicas)
        return fit(strategy, make, x, np.zeros(9), **options).history.history["loss"]

    one, two = losses(1), losses(2)
    assert one[0] > 50
    np.testing.assert_allclose(two, one, rtol=1e-4)


def test_nan_of_a_replica_without_samples_reaches_no_statistics():
    def normalized():
        largest = layers.Lambda(lambda x: x / tf.reduce_max(tf.abs(x), (1, 2, 3), keepdims=True))
        return keras.Sequential([largest, layers.Conv2D(4, 3)])

    one, two = (trained(replicas, (8, 8, 2), normalized) for replicas in (1, 2))
    assert_close(two, one, atol=2e-4)


def test_tensorflow_gets_the_shape_wrong():
    """Upstream test: when this fails, oneDNN's quirk in `kdist/spmd/empty_inputs.py` is gone."""
    if not onednn_is_on():
        pytest.skip("oneDNN is off")
    outputs = tf.nn.conv2d(tf.zeros((0, 8, 8, 2)), tf.zeros((3, 3, 2, 4)), 1, "SAME")
    assert outputs.shape == (0, 8, 8, 2)
