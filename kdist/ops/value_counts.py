"""Count a tensor's values in the bins of `kdist.analysis.histogram`."""

from typing import Any

import tensorflow as tf

from ..analysis.histogram import CODES


def value_counts(values: Any) -> Any:
    """Return how many values have each code, int32, shape `(4096,)`.

    The code of a float32 is its upper 12 bits, so it takes a shift and a count. The counts are
    integers, which any order of addition leaves the same.

    Args:
        values: A tensor of floating-point numbers, of any shape. float64 is counted by its own
            exponent: numbers beyond float32's range are in the last bin, below it they are zeros.
    """
    flat = tf.reshape(values, [-1])
    codes = _double_codes(flat) if flat.dtype == tf.float64 else _codes(tf.cast(flat, "float32"))
    return tf.raw_ops.DenseBincount(
        input=codes,
        size=tf.constant(CODES),
        weights=tf.zeros([0], "int32"),
        binary_output=False,
    )


def _codes(values: Any) -> Any:
    shifted = tf.bitwise.right_shift(tf.bitcast(values, "int32"), 20)
    return tf.bitwise.bitwise_and(shifted, CODES - 1)


def _double_codes(values: Any) -> Any:
    bits = tf.bitwise.right_shift(tf.bitcast(values, "int64"), 49)
    bits = tf.cast(tf.bitwise.bitwise_and(bits, 2**15 - 1), "int32")
    sign = tf.bitwise.right_shift(bits, 14)
    magnitude = tf.bitwise.bitwise_and(bits, 2**14 - 1)
    shifted = magnitude - ((1023 - 127) << 3)
    known = tf.clip_by_value(shifted, 0, (255 << 3) - 1)
    return 2048 * sign + tf.where(magnitude >= 2047 << 3, 255 << 3, known)
