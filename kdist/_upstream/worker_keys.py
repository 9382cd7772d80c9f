"""The values that workers share: the key-value store of TensorFlow's coordination service."""

import contextlib

import tensorflow as tf
from tensorflow.python.eager import context


def set_key(key: str, value: str) -> None:
    """Store a value that all workers can read."""
    context.context().set_config_key_value(key, value)


def get_key(key: str, *, timeout_ms: int) -> str | None:
    """Return the value that a worker has stored; `None` if there is none within the time."""
    try:
        return str(context.context().get_config_key_value(key, timeout_ms))
    except tf.errors.DeadlineExceededError:
        return None


def delete_key(key: str) -> None:
    """Delete a stored value."""
    with contextlib.suppress(tf.errors.OpError):
        context.context().delete_config_key_value(key)
