"""The tutorial's network: its parameters, layers, and function by TensorFlow's operations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.layers import LocalResponseNormalization
from kdist.models import Cifar10Net


def test_the_network_has_the_published_variables():
    model = Cifar10Net()
    assert model.count_params() == 1_068_298
    assert [tuple(weight.shape) for weight in model.trainable_variables] == [
        *[(5, 5, 3, 64), (64,), (5, 5, 64, 64), (64,)],
        *[(2304, 384), (384,), (384, 192), (192,), (192, 10), (10,)],
    ]
    assert model.output_shape == (None, 10)
    assert model.non_trainable_variables == []


def tutorial(weights, x):
    """The tutorial's `inference`, with TensorFlow's own operations."""
    conv1, bias1, conv2, bias2, *dense = weights

    def pool(x):
        return tf.nn.max_pool(x, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")

    def lrn(x):
        return tf.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)

    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, conv1, [1, 1, 1, 1], "SAME"), bias1))
    x = lrn(pool(x))
    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, conv2, [1, 1, 1, 1], "SAME"), bias2))
    x = tf.reshape(pool(lrn(x)), [len(x), -1])
    x = tf.nn.relu(tf.matmul(x, dense[0]) + dense[1])
    x = tf.nn.relu(tf.matmul(x, dense[2]) + dense[3])
    return tf.matmul(x, dense[4]) + dense[5]


def test_outputs_are_those_of_the_tutorial():
    keras.utils.set_random_seed(0)
    model = Cifar10Net()
    for weight in model.variables:
        weight.assign(weight * 3)  # so that no layer is nearly dead
    x = np.random.default_rng(0).normal(size=(3, 24, 24, 3)).astype(np.float32) * 30
    expected = tutorial(model.get_weights(), x).numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_initial_weights():
    keras.utils.set_random_seed(0)
    model = Cifar10Net()
    for name, deviation, bias in [
        ("conv1", 0.05, 0.0),
        ("conv2", 0.05, 0.1),
        ("local3", 0.04, 0.1),
        ("local4", 0.04, 0.1),
        ("classifier", 1 / 192, 0.0),
    ]:
        kernel, biases = model.get_layer(name).get_weights()
        assert np.abs(kernel).max() <= 2.001 * deviation  # truncated
        # A normal distribution that is cut at two deviations has 0.88 of the deviation.
        assert kernel.std() == pytest.approx(0.88 * deviation, rel=0.06)
        np.testing.assert_array_equal(biases, np.float32(bias))


def test_weight_decay_is_of_the_two_dense_layers():
    model = Cifar10Net()
    kernels = [model.get_layer(name).get_weights()[0] for name in ("local3", "local4")]
    expected = 0.004 * sum(float(tf.nn.l2_loss(kernel)) for kernel in kernels)
    assert sum(float(loss) for loss in model.losses) == pytest.approx(expected, rel=1e-5)
    assert Cifar10Net(weight_decay=0).losses == []


def test_the_places_of_the_normalization():
    layers = Cifar10Net().layers
    names = [layer.name for layer in layers]
    around = [names[names.index(name) - 1 : names.index(name) + 2] for name in ("norm1", "norm2")]
    assert around == [["pool1", "norm1", "conv2"], ["conv2", "norm2", "pool2"]]
    norms = [layer for layer in layers if layer.name.startswith("norm")]
    assert [type(norm) for norm in norms] == [LocalResponseNormalization] * 2


def test_image_sizes_classes_and_probabilities():
    model = Cifar10Net(input_shape=(28, 30, 1), classes=4, classifier_activation="softmax")
    y = model(np.random.default_rng(0).normal(size=(2, 28, 30, 1)))
    assert y.shape == (2, 4)
    np.testing.assert_allclose(keras.ops.sum(y, -1), 1, rtol=1e-6)


def test_the_classifier_is_precise_under_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = Cifar10Net()
    finally:
        keras.config.set_dtype_policy(before)
    assert model.get_layer("norm1").compute_dtype == "bfloat16"
    assert model.get_layer("classifier").compute_dtype == "float32"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"classes": 0}, "classes is 0, but has to be an integer of at least 1"),
        ({"weight_decay": -1}, "weight_decay is -1, but has to be a number of at least 0"),
        ({"input_shape": (None, 24, 3)}, "three integers of at least 1"),
        ({"input_shape": (24, 24)}, r"\(24, 24\), but has to be \(height, width, channels\)"),
    ],
)
def test_an_argument_out_of_range_is_an_error(options, why):
    with pytest.raises(UserError, match=why):
        Cifar10Net(**options)
