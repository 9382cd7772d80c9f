"""Decide where XLA's fused loops are faster, and compile for them."""

import functools
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from .. import _upstream

# Below this number of values per sample, calling XLA costs more than its fused loops save.
SMALLEST_COMPILED_SAMPLE = 2048
_ELEMENTWISE_DTYPES = (tf.float32, tf.float16, tf.bfloat16)

_apart: ContextVar[list[Any] | None] = ContextVar("_apart", default=None)


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
    """Return the method `name` of `kernels`, compiled if that is faster for inputs `x`.

    In a step that is itself compiled, XLA compiles the method with the rest, where no value is
    computed apart.
    """
    if worth_compiling(x) and not _upstream.is_compiled_by_xla():
        return _compiled_method(kernels, name, x.dtype.name, tuple(x.shape[1:]))
    method: Callable[..., Any] = getattr(kernels, name)
    return method


class CompiledMethod:
    """A method that XLA compiles, for any number of samples.

    Args:
        method: Takes and returns tensors.

    Attributes:
        function: Returns what the method does, and the values that it computes apart.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        def method_and_apart(*args: Any) -> tuple[Any, list[Any]]:
            values: list[Any] = []
            token = _apart.set(values)
            try:
                return method(*args), values
            finally:
                _apart.reset(token)

        self.function = tf.function(
            method_and_apart, jit_compile=True, autograph=False, reduce_retracing=True
        )

    def __call__(self, *args: Any) -> Any:
        """Return what the method does."""
        return self.function(*args)[0]


@functools.lru_cache(maxsize=1024)
def _compiled_method(
    kernels: Hashable, name: str, dtype: str, sample: tuple[int, ...]
) -> CompiledMethod:
    """Compile a method.

    All layers share one function per dtype and sample shape: TensorFlow warns about a function that
    is traced for many shapes.
    """
    del dtype, sample
    return CompiledMethod(getattr(kernels, name))


def can_compute_apart() -> bool:
    """Whether a compiled method is being traced, so that it may call `compute_apart`."""
    return _apart.get() is not None


def compute_apart(value: Any) -> Any:
    """Have XLA compute `value` in a loop of its own; return it.

    Of a sum of sums XLA would make a single long sum, which is slower and less accurate, or compute
    each inner sum within the loop of the outer one, value by value, which takes up to ten times as
    long. A barrier prevents the former and an output of the compiled function the latter. Not for
    values within a `tf.cond` or loop.
    """
    values = _apart.get()
    if values is None:
        raise RuntimeError("call compute_apart() where can_compute_apart() is true")
    values.append(_upstream.optimization_barrier(value))
    return values[-1]
