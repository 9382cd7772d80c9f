"""Dropout in one pass on CPUs, its mask drawn where it is needed and never kept."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .compilation import compiled, worth_compiling

_FUSED_DTYPES = (tf.float32, tf.float16, tf.bfloat16)


def fusible(inputs: Any, rate: Any, noise_shape: Any) -> bool:
    """Whether `fused_dropout` takes these: large samples on CPUs, each value for itself."""
    return (
        isinstance(inputs, tf.Tensor)
        and noise_shape is None
        and isinstance(rate, float)
        and 0 < rate < 1
        and inputs.dtype in _FUSED_DTYPES
        and worth_compiling(inputs)
    )


def fused_dropout_of(inputs: Any, rate: Any, noise_shape: Any) -> Callable[..., Any] | None:
    """`fused_dropout` of these but for seed and blocks; `None` where it does not take them."""
    if not fusible(inputs, rate, noise_shape):
        return None
    return functools.partial(fused_dropout, inputs, rate)


def fused_dropout(inputs: Any, rate: float, seed: Any, blocks: Any = None) -> Any:
    """Set a share of the values to 0 and divide the others by 1 - rate.

    TensorFlow's dropout draws its random numbers one after another, keeps them, and passes over
    the values four times: for a rate of 0.01 a tenth of a residual network's step on a CPU.

    Args:
        inputs: Any shape, the batch first.
        rate: The share, from 0 to 1 and neither.
        seed: Two integers; the same ones drop the same positions of as many values.
        blocks: Where the rows are in the global batch, `Block`s; `None` where they are all of it.

    Returns:
        As `inputs`.

    Source: Srivastava et al. 2014, "Dropout". Whether value i stays is told by SplitMix (Steele,
    Lea & Flood 2014, "Fast Splittable Pseudorandom Number Generators") with 32 bits and the
    finalizer of MurmurHash3, so that every value can be asked for on its own.
    """
    drop = _compiled(rate, inputs.dtype.name, tuple(inputs.shape[1:]))

    def of_rows(rows: Any, first_row: Any) -> Any:
        first = tf.cast(first_row * rows.shape[1:].num_elements(), "uint32")

        # The gradient draws the mask again, which costs less than to keep it.
        @tf.custom_gradient
        def dropout(x: Any) -> Any:
            return drop(x, seed, first), lambda dy: drop(dy, seed, first)

        return dropout(rows)

    if not blocks:
        return of_rows(inputs, 0)
    if len(blocks) == 1:
        return of_rows(inputs, blocks[0].first)
    parts = tf.split(inputs, [block.count for block in blocks])
    return tf.concat([of_rows(x, b.first) for x, b in zip(parts, blocks, strict=True)], 0)


@functools.lru_cache(maxsize=256)
def _compiled(rate: float, dtype: str, sample: tuple[int, ...]) -> Callable[..., Any]:
    """One for each shape, as TensorFlow warns of a function that is traced for many."""
    del dtype, sample
    return compiled(functools.partial(_dropped, rate=rate))


def _dropped(x: Any, seed: Any, first: Any, *, rate: float) -> Any:
    kept = random_bits(tf.size(x), seed, first) >= tf.constant(round(rate * 2**32), "uint32")
    return tf.where(tf.reshape(kept, tf.shape(x)), x * tf.cast(1 / (1 - rate), x.dtype), 0)


def random_bits(count: Any, seed: Any, first: Any = 0) -> Any:
    """Random numbers of 32 bits, uint32, shape (count,): those from the number `first` on."""
    one, other = tf.unstack(tf.cast(seed, "uint32"))
    # Neighbouring seeds are to give streams that have nothing in common.
    start = _mixed(_mixed(one) + other)
    twist = _mixed(start + _constant(0x9E3779B9))
    place = tf.cast(tf.range(count), "uint32") + tf.cast(first, "uint32")
    counter = place * _constant(0x9E3779B9) + start
    return _mixed(counter, twist)


def _mixed(h: Any, twist: Any = None) -> Any:
    """MurmurHash3's finalizer; the twist makes it another one for each stream."""
    h = _shifted(h, 16) * _constant(0x85EBCA6B)
    h = h if twist is None else tf.bitwise.bitwise_xor(h, twist)
    h = _shifted(h, 13) * _constant(0xC2B2AE35)
    return _shifted(h, 16)


def _shifted(h: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(h, tf.bitwise.right_shift(h, _constant(bits)))


def _constant(value: int) -> Any:
    return tf.constant(value, "uint32")
