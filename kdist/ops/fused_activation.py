"""Activations of several operations in one pass on CPUs."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .compilation import compiled, worth_compiling

_FUSED_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


def fusible(inputs: Any) -> bool:
    """Whether `fused_activation` supports these and is faster: large samples on CPUs."""
    return (
        isinstance(inputs, tf.Tensor) and inputs.dtype in _FUSED_DTYPES and worth_compiling(inputs)
    )


def fused_activation(
    function: Callable[..., Any], inputs: Any, *arguments: Any, **options: Any
) -> Any:
    """Call an activation in one pass over memory, and its gradient in another.

    TensorFlow computes GELU and its gradient in a dozen operations, each of which reads and writes
    all values. On a CPU this takes two to four times as long.

    Args:
        function: Called with `inputs`, `arguments` and `options`; without weights and random draws.
        inputs: Any shape, the batch first.
        *arguments: Numbers or booleans.
        **options: Numbers or booleans.

    Returns:
        What the function returns.
    """
    sample = tuple(inputs.shape[1:])
    forward, backward = _compiled(
        function, arguments, tuple(options.items()), inputs.dtype.name, sample
    )

    # The gradient computes the activation again, which costs less than storing its parts.
    @tf.custom_gradient
    def activation(x: Any) -> Any:
        return forward(x), lambda dy: backward(x, dy)

    return activation(inputs)


@functools.lru_cache(maxsize=256)
def _compiled(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: tuple[tuple[str, Any], ...],
    dtype: str,
    sample: tuple[int, ...],
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A pair per shape: TensorFlow warns about a function that is traced for many shapes."""
    del dtype, sample

    def forward(x: Any) -> Any:
        return function(x, *arguments, **dict(options))

    def backward(x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        return tape.gradient(y, x, dy)

    return compiled(forward), compiled(backward)
