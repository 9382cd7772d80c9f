import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.models import WideResNet
from kdist.performance.flops import peak_flops_per_second, training_flops


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


@pytest.mark.parametrize("replicas", [None, 2])
def test_a_peak_is_a_matrix_product_over_its_time(replicas):
    ticks = iter(np.cumsum([0, 4, 0, 2, 0, 8, 0, 5, 0, 3]))
    strategy = tf.distribute.get_strategy()
    if replicas:
        strategy = kdist.MirroredStrategy(replicas=replicas)
    peak = peak_flops_per_second(strategy, clock=lambda: float(next(ticks)))
    assert peak == 2 * 2048**3 / 2
