"""Activations of several operations in one pass on CPUs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from . import compilation
from .compilation import compiled_method
from .dense_gradient import dense_gradient


def fusible(inputs: Any, *arguments: Any) -> bool:
    """Whether `fused_activation` supports these, and is faster: large samples on CPUs."""
    are_constants = all(isinstance(one, bool | int | float) for one in arguments)
    return are_constants and compilation.fusible(inputs)


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
    kernels = _Activation(function, arguments, tuple(options.items()))

    # The gradient computes the activation again, which costs less than storing its parts.
    @tf.custom_gradient
    def activation(x: Any) -> Any:
        y = compiled_method(kernels, "forward", x)(x)
        return y, lambda dy: compiled_method(kernels, "backward", x)(x, dense_gradient(dy, x))

    return tf.ensure_shape(activation(inputs), inputs.shape)


@dataclasses.dataclass(frozen=True)
class _Activation:
    """A function of `x`, and its gradient."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.arguments, **dict(self.options))

    def backward(self, x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = self.forward(x)
        return tape.gradient(y, x, dy)
