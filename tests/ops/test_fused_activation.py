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


def test_those_of_large_samples_on_cpus_are_fused():
    def answer(shape, dtype="float32"):
        return fusible(tf.zeros(shape, dtype))

    assert answer((2, 64, 32))
    assert answer((2, 64, 32), "bfloat16")
    assert not answer((2, 64, 31))
    assert not answer((2, 64, 32), "float64")
    assert not fusible(np.zeros((2, 64, 32), "float32"))
