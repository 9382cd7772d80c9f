"""Decide where XLA's fused loops are faster, and compile for them."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

# Below this number of values per sample, calling XLA costs more than its fused loops save.
SMALLEST_COMPILED_SAMPLE = 2048
_ELEMENTWISE_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


def worth_compiling(x: Any) -> bool:
    """Whether XLA's fused loops are faster for inputs `x`: large samples of fixed shape, on CPUs.

    They halve the time of a large layer, which is limited by memory bandwidth. XLA compiles again
    for each shape, so only the batch size may vary. GPUs have cuDNN's kernels.
    """
    sample = x.shape[1:]
    if not sample.is_fully_defined() or sample.num_elements() < SMALLEST_COMPILED_SAMPLE:
        return False
    return not tf.config.list_logical_devices("GPU")


def fusible(x: Any) -> bool:
    """Whether an operation of Keras on each value of `x` may be replaced by a fused one."""
    return isinstance(x, tf.Tensor) and x.dtype in _ELEMENTWISE_DTYPES and worth_compiling(x)


def compiled_method(kernels: Hashable, name: str, x: Any) -> Callable[..., Any]:
    """Return the method `name` of `kernels`, compiled if that is faster for inputs `x`."""
    if worth_compiling(x):
        return _compiled_method(kernels, name, x.dtype.name, tuple(x.shape[1:]))
    method: Callable[..., Any] = getattr(kernels, name)
    return method


@functools.lru_cache(maxsize=1024)
def _compiled_method(
    kernels: Hashable, name: str, dtype: str, sample: tuple[int, ...]
) -> Callable[..., Any]:
    """Compile a method with XLA, for any number of samples.

    All layers share one function per dtype and sample shape: TensorFlow warns about a function that
    is traced for many shapes.
    """
    del dtype, sample
    fused: Callable[..., Any] = tf.function(
        getattr(kernels, name), jit_compile=True, autograph=False, reduce_retracing=True
    )
    return fused
