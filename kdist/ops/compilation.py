"""Decide where XLA's fused loops are faster."""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

# Below this number of values per sample, calling XLA costs more than its fused loops save.
SMALLEST_COMPILED_SAMPLE = 2048


def worth_compiling(x: Any) -> bool:
    """Whether XLA's fused loops are faster for inputs `x`: large samples of fixed shape, on CPUs.

    They halve the time of a large layer, which is limited by memory bandwidth. XLA compiles again
    for each shape, so only the batch size may vary. GPUs have cuDNN's kernels.
    """
    sample = x.shape[1:]
    if not sample.is_fully_defined() or sample.num_elements() < SMALLEST_COMPILED_SAMPLE:
        return False
    return not tf.config.list_logical_devices("GPU")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function with XLA, for any number of samples."""
    fused: Callable[..., Any] = tf.function(
        function, jit_compile=True, autograph=False, reduce_retracing=True
    )
    return fused


def method(kernels: Hashable, name: str, x: Any) -> Callable[..., Any]:
    """Return the method `name` of `kernels`, compiled if that is faster for inputs `x`."""
    if worth_compiling(x):
        return _compiled_method(kernels, name, tuple(x.shape[1:]))
    bound: Callable[..., Any] = getattr(kernels, name)
    return bound


# One function per sample shape, shared by all layers: TensorFlow warns about a function that is
# traced for many shapes.
@functools.lru_cache(maxsize=256)
def _compiled_method(kernels: Hashable, name: str, sample: tuple[int, ...]) -> Callable[..., Any]:
    del sample
    return compiled(getattr(kernels, name))
