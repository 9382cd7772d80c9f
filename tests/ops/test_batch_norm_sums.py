"""Batch norm's sums in functions that XLA compiles: split so that they are fast and accurate."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from kdist.ops.batch_norm import LONGEST_FUSED_SUM, Kernels, Moments, _sum_lengths
from kdist.ops.compilation import can_store, compiled_method, stored

KERNELS = Kernels(rank=4, axis=3, accumulate="float32", output="float32", epsilon=1e-3)


@given(st.integers(1, 100_000))
def test_lengths_multiply_to_all_positions(positions):
    lengths = _sum_lengths(positions)
    assert math.prod(lengths) == positions
    longer = [n for n in lengths if n > LONGEST_FUSED_SUM]
    assert len(longer) <= 1
    assert all(n % factor for n in longer for factor in range(2, LONGEST_FUSED_SUM + 1))


# The last has sides that are prime, and longer than XLA's sums with their summands.
@pytest.mark.parametrize("shape", [(256, 28, 28, 8), (64, 45, 45, 8), (64, 37, 41, 8)])
def test_compiled_moments_keep_float32s_digits(shape):
    """100,000 values a channel: of a single long sum, the variance is off by 1e-6."""
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    count, mean, squares = compiled_method(KERNELS, "local_moments", tf.constant(x))(x, None)
    values = x.astype("float64").reshape(-1, shape[-1])
    np.testing.assert_array_equal(count, len(values))
    np.testing.assert_allclose(mean, values.mean(0), atol=1e-8)
    np.testing.assert_allclose(squares, values.var(0) * len(values), rtol=5e-7)


def test_compiled_sums_equal_those_of_tensorflow():
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 12, 21, 26, 16)).astype("float32")
    mask = rng.random((12, 21, 26, 1)) < 0.7
    moments = Moments(*rng.uniform(0.5, 2, (3, 16)).astype("float32"))
    for name, arguments in (
        ("local_moments", (x, None)),
        ("local_moments", (x, np.broadcast_to(mask, x.shape))),
        ("gradient_sums", (dy, x, moments)),
    ):
        compiled = compiled_method(KERNELS, name, tf.constant(x))(*arguments)
        np.testing.assert_allclose(
            compiled, getattr(KERNELS, name)(*arguments), rtol=2e-5, atol=2e-4
        )


def test_values_are_stored_only_by_compiled_methods():
    assert not can_store()
    with pytest.raises(RuntimeError, match="can_store"):
        stored(tf.ones(2))
