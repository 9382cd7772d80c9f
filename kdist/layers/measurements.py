"""Measure a model without changing its variables: its loss, and counts of a tensor's values."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from .._upstream.internals import call_model, compute_loss
from .histogram import CODES


@contextlib.contextmanager
def stateless_pass(model: keras.Model) -> Iterator[list[Any]]:
    """Undo all changes of the model's variables after the `with` block.

    Moving statistics, seeds and metrics do not change, and there is no strategy inside the block.
    Only Keras's variables are restored, not a `tf.Variable` that a layer assigns to.

    Yields:
        The tensors that stand for `model.trainable_weights`, in their order.
    """
    with tf.Graph().as_default():
        default_strategy = tf.distribute.get_strategy()
    # Keras divides losses by the number of replicas if fit() was called in a strategy's scope.
    with tf.distribute.ReplicaContext(default_strategy, 0):
        # Regularizers look up weights in the scope, and fail without them.
        weights = [
            (weight, tf.convert_to_tensor(weight.value)) for weight in model.trainable_weights
        ]
        with keras.StatelessScope(weights, collect_losses=True):
            yield [tensor for _, tensor in weights]


def mean_loss(model: keras.Model, data: Any, *, training: bool) -> Any:
    """Return the model's loss on a batch, a scalar: its mean over samples if not reduced."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = call_model(model, x, training=training)
    loss = compute_loss(model, x, y, y_pred, sample_weight, training=training)
    return tf.reduce_mean(loss)


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
