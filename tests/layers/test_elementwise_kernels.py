"""Activations and dropout in one pass."""

import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.layers.elementwise_kernels import (
    activation_fusible,
    dropout_fusible,
    fused_activation,
    fused_dropout,
    random_bits,
)
from keras.src.backend.tensorflow import nn

ACTIVATIONS = {
    "gelu": (nn.gelu, {"approximate": False}),
    "approximate gelu": (nn.gelu, {"approximate": True}),
    "silu": (nn.silu, {}),
    "hard_silu": (nn.hard_silu, {}),
}


def numpy_gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf, "d")(x / np.sqrt(2)))


ORACLES = {
    "gelu": numpy_gelu,
    "approximate gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}


def derivatives(function, x, upstream):
    """Return the values, and the first and second derivatives along `upstream`."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        first = tape.gradient(y, x, upstream)
    return y, first, outer.gradient(first, x)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@given(rows=st.integers(0, 5), scale=st.sampled_from([0.1, 1.0, 20.0]))
@settings(max_examples=5, deadline=None)
def test_values_and_derivatives_are_the_activations(name, graph, rows, scale):
    function, options = ACTIVATIONS[name]
    random = np.random.default_rng(rows)
    x, upstream = random.normal(scale=scale, size=(2, rows, 64, 32)).astype("float32")

    def fused(x):
        return fused_activation(function, x, **options)

    both = tf.function(derivatives) if graph else derivatives
    found = both(fused, tf.constant(x), tf.constant(upstream))
    wide = x.astype("float64")
    exact = derivatives(
        lambda x: function(x, **options), tf.constant(wide), tf.constant(upstream, tf.float64)
    )
    np.testing.assert_allclose(found[0], ORACLES[name](wide), rtol=1e-5, atol=1e-5 * scale)
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_half_precision(name, dtype):
    function, options = ACTIVATIONS[name]
    # Without the corners of hard SiLU, near which rounding chooses a side.
    x = tf.cast(np.random.default_rng(0).uniform(-2.9, 2.9, size=(3, 64, 32)), dtype)

    def values_and_gradient(activation, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = activation(x)
        return y, tape.gradient(y, x)

    found = values_and_gradient(lambda x: fused_activation(function, x, **options), x)
    exact = values_and_gradient(lambda x: function(x, **options), tf.cast(x, "float64"))
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(tf.cast(one, "float64"), other, rtol=0.05, atol=0.05)


def test_those_of_large_samples_on_cpus_are_fused():
    def answer(shape, dtype="float32", *arguments):
        return activation_fusible(tf.zeros(shape, dtype), *arguments)

    assert answer((2, 64, 32), "float32", True)
    assert answer((2, 64, 32), "bfloat16")
    assert not answer((2, 64, 31))
    assert not answer((2, 64, 32), "float64")
    assert not answer((2, 64, 32), "float32", tf.constant(True))
    assert not activation_fusible(np.zeros((2, 64, 32), "float32"))


def test_the_batch_size_stays_known():
    for count in (None, 8, 7):
        call = tf.function(lambda x: fused_activation(nn.gelu, x))
        outputs = call.get_concrete_function(tf.TensorSpec((count, 64, 64))).outputs
        assert outputs[0].shape == (count, 64, 64)


def test_the_gradient_of_gathered_rows():
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 64, 32)), "float32")

    @tf.function
    def gradient(x, rows):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(fused_activation(nn.silu, x), rows)
        return tape.gradient(y, x)

    found = gradient(x, [0, 2, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = nn.silu(x)
    expected = tape.gradient(y, x) * tf.constant([1.0, 0, 2, 0])[:, None, None]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_jacobian():
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 2048)), "float32")

    @tf.function
    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fused_activation(nn.silu, x)[:, :3]
        return tape.jacobian(y, x)

    sigmoid = 1 / (1 + np.exp(-x[0, :3]))
    found = jacobian(x)[0, :, 0].numpy()
    np.testing.assert_allclose(np.diag(found), sigmoid * (1 + x[0, :3] * (1 - sigmoid)), rtol=1e-5)
    assert np.count_nonzero(found) == 3


COUNT = 40_000


def bits(seed, count=COUNT):
    return random_bits(count, tf.constant(seed, "int32")).numpy()


def reference_bits(seed, count):
    """SplitMix with the finalizer of MurmurHash3, in Python's integers."""
    mask = 2**32 - 1

    def mixed(h, twist=0):
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
        h ^= twist
        h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
        return h ^ (h >> 16)

    start = mixed((mixed(seed[0]) + seed[1]) & mask)
    twist = mixed((start + 0x9E3779B9) & mask)
    return [mixed((i * 0x9E3779B9 + start) & mask, twist) for i in range(count)]


@given(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)))
@settings(max_examples=25, deadline=None)
def test_the_bits_are_those_of_the_reference(seed):
    assert bits(seed, 50).tolist() == reference_bits(seed, 50)


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000), st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_the_bits_from_a_place_on_are_those_of_the_whole(first, second, place):
    later = random_bits(50, tf.constant((first, second)), place).numpy()
    assert later.tolist() == bits((first, second), 50 + place)[place:].tolist()


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_bits_are_uniform(first, second):
    values = bits((first, second))
    # 256 bins by the high byte and by the low one: chi squared of 255 degrees of freedom has mean
    # 255 and deviation 22.6; six deviations are met once in a hundred million.
    for byte in (values >> 24, values & 255):
        counts = np.bincount(byte, minlength=256)
        expected = COUNT / 256
        assert np.sum((counts - expected) ** 2 / expected) < 255 + 6 * 22.6


@given(st.integers(0, 2**31 - 3), st.integers(0, 1000), st.integers(1, 3000))
@settings(max_examples=10, deadline=None)
def test_neither_neighbours_nor_neighbouring_seeds_are_alike(first, second, lag):
    here = bits((first, second)) / 2**32
    others = [
        np.roll(here, lag),
        bits((first, second + 1)) / 2**32,
        bits((first + 1, second)) / 2**32,
    ]
    for other in others:
        assert abs(np.corrcoef(here, other)[0, 1]) < 6 / COUNT**0.5


def test_the_rate_and_the_mean():
    x = tf.ones((16, 64, 64))
    y = fused_dropout(x, 0.1, tf.constant([3, 4])).numpy()
    dropped = np.mean(y == 0)
    assert dropped == pytest.approx(0.1, abs=6 * (0.09 / y.size) ** 0.5)
    np.testing.assert_allclose(y[y != 0], 1 / 0.9, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_gradient_passes_where_the_value_did(dtype):
    x = tf.cast(tf.random.normal((4, 64, 64)) + 10, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fused_dropout(x, 0.3, tf.constant([1, 2]))
    gradient = tape.gradient(y, x).numpy().astype("float32")
    y = y.numpy().astype("float32")
    assert np.array_equal(gradient == 0, y == 0)
    np.testing.assert_allclose(gradient[y != 0], 1 / 0.7, rtol=1e-2)


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_any_number_of_samples(samples):
    x = tf.ones((samples, 64, 64))
    assert fused_dropout(x, 0.3, tf.constant([1, 2])).shape == x.shape


@pytest.mark.parametrize(
    ("shape", "dtype", "rate", "noise_shape", "expected"),
    [
        ((None, 64, 64), "float32", 0.1, None, True),
        ((None, 64), "float32", 0.1, None, False),
        ((None, None, 64), "float32", 0.1, None, False),
        ((None, 64, 64), "float64", 0.1, None, False),
        ((None, 64, 64), "float32", 0.1, (None, 1, 64), False),
        ((None, 64, 64), "float32", 1, None, False),
        ((None, 64, 64), "float32", 1.0, None, False),
        ((None, 64, 64), "float32", 0.0, None, False),
    ],
)
def test_which_are_fused(shape, dtype, rate, noise_shape, expected):
    seen = []
    step = tf.function(
        lambda x: seen.append(dropout_fusible(x, rate, noise_shape)), autograph=False
    )
    step.get_concrete_function(tf.TensorSpec(shape, dtype))
    assert seen == [expected]


def test_arrays_and_a_rate_of_one_are_left_to_keras():
    with kdist.MirroredStrategy(replicas=1).scope():
        x = np.ones((2, 64, 64), "float32")
        assert np.all(np.asarray(keras.random.dropout(x, 1.0)) == 0)
        assert 0.4 < np.mean(np.asarray(keras.random.dropout(x, 0.5)) == 0) < 0.6


def dropout_of(strategy, times=1):
    """What a Dropout layer gives in the strategy's step, `times` times."""
    with strategy.scope():
        layer = keras.layers.Dropout(0.5, seed=7)
    step = tf.function(lambda: strategy.run(lambda: layer(tf.ones((2, 64, 64)), training=True)))
    return [step().numpy() for _ in range(times)]


def test_every_step_draws_anew():
    one, other = dropout_of(kdist.MirroredStrategy(replicas=2), times=2)
    assert np.mean((one == 0) == (other == 0)) == pytest.approx(0.5, abs=0.05)


def test_a_seed_repeats_itself():
    one, other = (dropout_of(kdist.MirroredStrategy(replicas=1))[0] for _ in range(2))
    assert np.array_equal(one, other)


def test_stock_keras_draws_as_before():
    stock = dropout_of(tf.distribute.get_strategy())[0]
    generator = keras.random.SeedGenerator(7)
    expected = keras.random.dropout(tf.ones((2, 64, 64)), 0.5, seed=generator)
    assert np.array_equal(stock, expected)
    assert not np.array_equal(stock, dropout_of(kdist.MirroredStrategy(replicas=1))[0])
