"""Activations and dropout in one pass on CPUs."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .compiled_kernels import compiled_method, dense_gradient, is_fusible


def activation_fusible(inputs: Any, *arguments: Any) -> bool:
    """Whether `fused_activation` supports these, and is faster: large samples on CPUs."""
    are_constants = all(isinstance(one, bool | int | float) for one in arguments)
    return are_constants and is_fusible(inputs)


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


def dropout_fusible(inputs: Any, rate: Any, noise_shape: Any) -> bool:
    """Whether `fused_dropout` supports these: large samples on CPUs, without a noise shape."""
    return noise_shape is None and isinstance(rate, float) and 0 < rate < 1 and is_fusible(inputs)


def fused_dropout_of(inputs: Any, rate: Any, noise_shape: Any) -> Callable[..., Any] | None:
    """Return a function of the seed, or `None` if `fused_dropout` does not support these."""
    if not dropout_fusible(inputs, rate, noise_shape):
        return None
    return functools.partial(fused_dropout, inputs, rate)


def fused_dropout(inputs: Any, rate: float, seed: Any) -> Any:
    """Set a fraction of the values to 0 and divide the others by 1 - rate.

    TensorFlow's dropout draws its random numbers sequentially, stores them, and reads the values
    four times. For a rate of 0.01, this is a tenth of a residual network's step on a CPU.

    Args:
        inputs: Any shape, the batch first.
        rate: The fraction, above 0 and below 1.
        seed: Two integers; for inputs of equal size, the same seed drops the same positions.

    Returns:
        A tensor like `inputs`.

    Source: Srivastava et al. 2014, "Dropout". SplitMix (Steele, Lea & Flood 2014, "Fast Splittable
    Pseudorandom Number Generators") with 32 bits and the finalizer of MurmurHash3 decides whether
    value i is kept, so each value can be computed separately.
    """
    drop = compiled_method(_Dropout(rate), "drop", inputs)

    first = tf.zeros((), "uint32")

    # The gradient draws the mask again, which costs less than storing it.
    @tf.custom_gradient
    def dropout(x: Any) -> Any:
        return drop(x, seed, first), lambda dy: drop(dense_gradient(dy, x), seed, first)

    return tf.ensure_shape(dropout(inputs), inputs.shape)


@dataclasses.dataclass(frozen=True)
class _Dropout:
    rate: float

    def drop(self, x: Any, seed: Any, first: Any) -> Any:
        least = tf.constant(round(self.rate * 2**32), "uint32")
        kept = tf.reshape(random_bits(tf.size(x), seed, first) >= least, tf.shape(x))
        return tf.where(kept, x * tf.cast(1 / (1 - self.rate), x.dtype), 0)


def random_bits(count: Any, seed: Any, first: Any = 0) -> Any:
    """Return random uint32 numbers, shape (count,), beginning with number `first` of the stream."""
    one, other = tf.unstack(tf.cast(seed, "uint32"))
    # Consecutive seeds have to give independent streams.
    start = _mix(_mix(one) + other)
    twist = _mix(start + _constant(0x9E3779B9))
    position = tf.cast(tf.range(count), "uint32") + tf.cast(first, "uint32")
    counter = position * _constant(0x9E3779B9) + start
    return _mix(counter, twist)


def _mix(h: Any, twist: Any = None) -> Any:
    """MurmurHash3's finalizer; the twist changes it for each stream."""
    h = _xor_shift(h, 16) * _constant(0x85EBCA6B)
    h = h if twist is None else tf.bitwise.bitwise_xor(h, twist)
    h = _xor_shift(h, 13) * _constant(0xC2B2AE35)
    return _xor_shift(h, 16)


def _xor_shift(h: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(h, tf.bitwise.right_shift(h, _constant(bits)))


def _constant(value: int) -> Any:
    return tf.constant(value, "uint32")
