"""Activations in one pass are Keras's, gradients of any order included."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.ops.fused_activation import fused_activation, fusible
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
        return fusible(tf.zeros(shape, dtype), *arguments)

    assert answer((2, 64, 32), "float32", True)
    assert answer((2, 64, 32), "bfloat16")
    assert not answer((2, 64, 31))
    assert not answer((2, 64, 32), "float64")
    assert not answer((2, 64, 32), "float32", tf.constant(True))
    assert not fusible(np.zeros((2, 64, 32), "float32"))


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
