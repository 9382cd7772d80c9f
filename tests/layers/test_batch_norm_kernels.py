"""Batch norm's sums in functions that XLA compiles: split so that they are fast and accurate."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from kdist.layers.batch_norm_kernels import LONGEST_FUSED_SUM, Kernels, Moments, _sum_lengths
from kdist.layers.compiled_kernels import (
    CompiledMethod,
    can_compute_apart,
    compiled_method,
    compute_apart,
)

KERNELS = Kernels(rank=4, axis=3, accumulate="float32", output="float32", epsilon=1e-3)


@given(st.integers(1, 100_000))
def test_lengths_multiply_to_all_positions(positions):
    *lengths, samples, groups = _sum_lengths(positions) or [1, 1, 1]
    assert math.prod(lengths) == positions
    assert samples == groups == (1 if positions == 1 else LONGEST_FUSED_SUM)
    longer = [n for n in lengths if n > LONGEST_FUSED_SUM]
    assert len(longer) <= 1
    assert all(n % factor for n in longer for factor in range(2, LONGEST_FUSED_SUM + 1))


# Many small samples, too. The last has sides that are prime, and longer than XLA's sums with their
# summands.
@pytest.mark.parametrize(
    "shape",
    [(256, 28, 28, 8), (4096, 8, 8, 32), (1000, 1, 48, 64), (64, 45, 45, 8), (64, 37, 41, 8)],
)
def test_compiled_moments_keep_float32s_digits(shape):
    """100,000 values per channel: of a single long sum, the variance is off by 1e-6."""
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    count, mean, squares = compiled_method(KERNELS, "local_moments", tf.constant(x))(x, None)
    values = x.astype("float64").reshape(-1, shape[-1])
    np.testing.assert_array_equal(count, len(values))
    np.testing.assert_allclose(mean, values.mean(0), atol=3e-8)
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


@pytest.mark.parametrize("batch", [0, 1, 31, 33])
def test_batches_of_any_size(batch):
    x = np.random.default_rng(0).normal(size=(batch, 16, 16, 8)).astype("float32")
    count, mean, squares = compiled_method(KERNELS, "local_moments", tf.constant(x))(x, None)
    values = x.astype("float64").reshape(-1, 8)
    n = max(len(values), 1)
    np.testing.assert_array_equal(count, len(values))
    np.testing.assert_allclose(mean, values.sum(0) / n, atol=3e-8)
    np.testing.assert_allclose(
        squares, np.square(values - values.sum(0) / n).sum(0), rtol=5e-7, atol=1e-30
    )


def test_xla_computes_short_sums_apart_and_stores_no_summands():
    x = tf.zeros((128, 28, 28, 16))
    method = compiled_method(KERNELS, "local_moments", x)
    assert isinstance(method, CompiledMethod)
    method(x)
    function = method.functions[1]
    result, apart = function(x)
    assert len(apart) == 2 * len(_sum_lengths(28 * 28))  # of the values and of the squares
    assert [tuple(one.shape) for one in apart[:2]] == [(128 * 28, 16), (128, 16)]
    compiled = function.experimental_get_compiler_ir(x)(stage="optimized_hlo")
    entry = compiled[compiled.index("\nENTRY") :]
    large = [line for line in entry.splitlines() if f"f32[{128 * 28 * 28},16]" in line]
    assert not [line for line in large if " fusion(" in line or "reduce-window" in line]


def test_a_compiled_step_compiles_methods_with_the_rest():
    x = tf.zeros((2, 28, 28, 16))
    methods = []

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        methods.append(compiled_method(KERNELS, "local_moments", x))
        assert not can_compute_apart()
        return methods[0](x, None)

    step(x)
    assert methods == [KERNELS.local_moments]


def test_values_are_computed_apart_only_in_compiled_methods():
    assert not can_compute_apart()
    with pytest.raises(RuntimeError, match="can_compute_apart"):
        compute_apart(tf.ones(2))
