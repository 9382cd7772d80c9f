"""Count the batches that this worker has read, to compare them at the end of an epoch."""

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def count_batch(optionals: list[list[Any]]) -> None:
    """Count a batch as it is read, unless this worker's data are at their end.

    Args:
        optionals: For each replica of this worker, the data that it may have.
    """
    (local,) = optionals
    with tf.device("/cpu:0"):
        _counter().assign_add(tf.cast(local[0].has_value(), tf.int64))


def batches_read() -> int:
    """Return how many batches this worker has read since it was started."""
    return int(_counter().numpy())


@functools.cache
def _counter() -> Any:
    """A variable of this worker, not of its strategy, that steps can count with."""
    with tf.init_scope(), tf.device("/cpu:0"):
        return resource_variable_ops.ResourceVariable(
            tf.zeros((), tf.int64), trainable=False, name="kdist_batches_read"
        )
