"""Kernels as functions: compiled by XLA where it is faster, named for the sharding rules."""

import functools
import inspect
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from .._upstream.graphs import is_compiled_by_xla, optimization_barrier
from .._upstream.steps import divides_step

# Below this number of values per sample, calling XLA costs more than its fused loops save.
SMALLEST_COMPILED_SAMPLE = 2048

# Arguments with samples along the first axis; each replica has a part of them.
_OF_SAMPLES = {"x", "dy", "mask"}

_apart: ContextVar[list[Any] | None] = ContextVar("_apart", default=None)


def worth_compiling(x: Any) -> bool:
    """Whether XLA's fused loops are faster for inputs `x`: large samples of fixed shape, on CPUs.

    A large layer is limited by memory bandwidth, and the loops halve its time. XLA compiles again
    for each shape, so only the batch size may vary. GPUs have cuDNN's kernels.
    """
    sample = x.shape[1:]
    if not sample.is_fully_defined() or sample.num_elements() < SMALLEST_COMPILED_SAMPLE:
        return False
    return not tf.config.list_logical_devices("GPU")


def compiled_method(kernels: Hashable, name: str, x: Any) -> Callable[..., Any]:
    """Return the method `name` of `kernels`, compiled if this is faster for inputs `x`.

    In a step that is itself compiled, XLA compiles the method as a part of the step, and
    `compute_apart` is not available. In a step that is divided over replicas, the method is a
    function with a name that the sharding rules know.
    """
    if worth_compiling(x) and not is_compiled_by_xla():
        return _compiled_method(kernels, name, x.dtype.name, tuple(x.shape[1:]))
    if divides_step():
        shape = tuple(x.shape[1:]) if x.shape.rank else None
        return _named_method(kernels, name, x.dtype.name, shape)
    method: Callable[..., Any] = getattr(kernels, name)
    return method


class CompiledMethod:
    """A method as a named function, compiled by XLA for any number of samples.

    Args:
        method: Function of tensors that returns tensors.
        jit_compile: Whether XLA compiles the function.

    Attributes:
        functions: Functions by their number of tensors. Each function takes a flat list of tensors
            without `None`, and returns the result of the method and the values that the method
            computes apart.
    """

    def __init__(self, method: Callable[..., Any], *, jit_compile: bool = True) -> None:
        self._method, self._jit_compile = method, jit_compile
        self._names = list(inspect.signature(method).parameters)
        self.functions: dict[int, Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Return the result of the method."""
        named = [(n, a) for n, a in zip(self._names, args, strict=False) if a is not None]
        structure = tuple(a for _, a in named)
        tensors = tf.nest.flatten(structure)
        if len(tensors) not in self.functions:
            self.functions[len(tensors)] = self._function(structure)
        function = self.functions[len(tensors)]
        if not divides_step():
            return function(*tensors)[0]
        # A replica has some of the samples, but a static shape may be that of the whole batch.
        specs = [
            tf.TensorSpec([None, *t.shape[1:]] if n in _OF_SAMPLES else t.shape, t.dtype)
            for n, a in named
            for t in tf.nest.flatten(a)
        ]
        return function.get_concrete_function(*specs)(*tensors)[0]

    def _function(self, structure: Any) -> Any:
        """Make the function for arguments of a given structure."""
        method, jit_compile = self._method, self._jit_compile
        structure = tf.nest.map_structure(lambda _: None, structure)

        def method_and_apart(*tensors: Any) -> tuple[Any, list[Any]]:
            values: list[Any] = []
            args = tf.nest.pack_sequence_as(structure, tensors)
            token = _apart.set(values if jit_compile else None)
            try:
                return method(*args), values
            finally:
                _apart.reset(token)

        return tf.function(
            method_and_apart,
            jit_compile=jit_compile,
            autograph=False,
            reduce_retracing=True,
            experimental_implements=kernel_name(method),
        )


@functools.lru_cache(maxsize=1024)
def _compiled_method(
    kernels: Hashable, name: str, dtype: str, sample: tuple[int, ...]
) -> CompiledMethod:
    """Return the compiled method, a function per dtype and sample shape that all layers share.

    TensorFlow warns about a function that is traced for many shapes.
    """
    del dtype, sample
    return CompiledMethod(getattr(kernels, name))


@functools.lru_cache(maxsize=1024)
def _named_method(kernels: Hashable, name: str, dtype: str, sample: Any) -> CompiledMethod:
    """Return the method as a named function without compilation."""
    del dtype, sample
    return CompiledMethod(getattr(kernels, name), jit_compile=False)


def kernel_name(method: Callable[..., Any]) -> str:
    """Return the method's name in the sharding rules, such as `Kernels.normalize`."""
    return method.__qualname__.lstrip("_")


def can_compute_apart() -> bool:
    """Whether a compiled method is being traced, so that it may call `compute_apart`."""
    return _apart.get() is not None


def compute_apart(value: Any) -> Any:
    """Make XLA compute `value` in a separate loop; return the value.

    XLA would turn a sum of sums into a single long sum, which is slower and less accurate. Or XLA
    would compute each inner sum within the loop of the outer sum, value by value, which takes up to
    ten times as long. A barrier prevents the single sum; an output of the compiled function
    prevents the nested loop. Do not call this function within a `tf.cond` or a loop.
    """
    values = _apart.get()
    if values is None:
        raise RuntimeError("call compute_apart() where can_compute_apart() is true")
    values.append(optimization_barrier(value))
    return values[-1]
