"""On one GPU XLA compiles a step by default, and draws other numbers than TensorFlow."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.strategies import exact_strategy
from kdist.tools.check.built_in_models import BUILT_IN_MODELS
from kdist.tools.check.check_model import make_strategies, run_check
from kdist.tools.check.check_options import CheckOptions

ROWS = np.ones((10, 12), "float32")


@pytest.fixture(autouse=True)
def on_gpus(monkeypatch):
    """CPUs stand for the GPUs."""
    monkeypatch.setattr(exact_strategy, "are_gpus", lambda devices: True)


def model(supports_jit=True, **options):
    keras.utils.set_random_seed(3)
    layers = keras.layers
    made = keras.Sequential(
        [keras.Input((12,)), layers.Dropout(0.5), layers.GaussianNoise(1.0), layers.Dense(2)]
    )
    made.layers[0].supports_jit = supports_jit
    made.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return made


def trained(strategy, **options):
    with strategy.scope():
        made = model(**options)
    made.fit(ROWS, ROWS[:, :2], batch_size=5, epochs=2, verbose=0)
    return made


def weights(strategy, **options):
    return trained(strategy, **options).get_weights()[0]


class Noise(keras.layers.Layer):
    """Draws of constant seeds, and of classes."""

    def call(self, x):
        classes = tf.random.stateless_categorical(tf.zeros([1, 12]) + x[:1], 12, [1, 2])
        fixed = tf.random.stateless_normal([12], [1, 2])
        return x * fixed + tf.cast(classes, x.dtype) + keras.random.uniform([12], seed=5)


def test_any_number_of_gpus_draws_what_stock_keras_does_on_one():
    compiled, plain = (weights(tf.distribute.get_strategy(), jit_compile=c) for c in (True, False))
    assert np.abs(compiled - plain).max() > 0.01
    for replicas in (1, 3):
        got = trained(kdist.MirroredStrategy(replicas=replicas))
        np.testing.assert_allclose(got.get_weights()[0], compiled, atol=1e-6)
        assert got.jit_compile == (replicas == 1)
    shards = trained(kdist.MirroredStrategy(replicas=1, shards=2))
    np.testing.assert_allclose(shards.get_weights()[0], compiled, atol=1e-6)
    assert not shards.jit_compile  # as two GPUs, for the same bits


@pytest.mark.parametrize("options", [{"supports_jit": False}, {"jit_compile": False}])
def test_replicas_draw_as_tensorflow_if_xla_is_off_on_one_gpu(options):
    expected = weights(tf.distribute.get_strategy(), **options)
    got = weights(kdist.MirroredStrategy(replicas=2), **options)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    plain = weights(tf.distribute.get_strategy(), jit_compile=False)
    np.testing.assert_allclose(got, plain, atol=1e-6)


def test_draws_of_constants_and_of_a_model_that_is_not_compiled_are_xlas():
    def predicted(strategy, name, jit_compile=None):
        with strategy.scope():
            made = keras.Sequential([keras.Input((12,)), Noise()])
            if jit_compile is not None:
                made.compile(jit_compile=jit_compile)
        return getattr(made, name)(ROWS)

    stock, strategy = tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=2)
    expected = predicted(stock, "predict", jit_compile=True)
    assert np.abs(expected - predicted(stock, "predict", jit_compile=False)).max() > 0.1
    for name in ("predict", "predict_on_batch"):
        np.testing.assert_allclose(predicted(strategy, name), expected, atol=1e-5)


def test_xla_can_be_turned_off_after_compile():
    def trained_without(strategy):
        with strategy.scope():
            made = model()
        made.jit_compile = False
        made.fit(ROWS, ROWS[:, :2], batch_size=5, epochs=2, verbose=0)
        return made.get_weights()[0]

    stock, strategy = tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=2)
    np.testing.assert_allclose(trained_without(strategy), trained_without(stock), atol=1e-6)


def test_a_check_compares_with_what_draws_alike():
    options = CheckOptions(replicas=(2,), steps=2, batch_size=12)
    result = run_check(BUILT_IN_MODELS["dropout"], make_strategies(options), options, float64=False)
    assert result.equal
