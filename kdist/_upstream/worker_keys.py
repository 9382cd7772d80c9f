"""The values that workers share: the key-value store of TensorFlow's coordination service.

The chief has it. If its process stands still, TensorFlow waits forever to store or delete a value,
also after the chief has missed its heartbeats.
"""

import contextlib
import threading
import time

import tensorflow as tf
from tensorflow.python.eager import context

from .unlocked import call

_ALIVE = "kdist/alive"
_ASK_MS = 500


class _Chief:
    """Whether the chief answers."""

    patience = 10.0
    silent_since: float | None = None


def begin(*, is_chief: bool, heartbeat_seconds: float) -> None:
    """Begin to use the store.

    Args:
        is_chief: Whether this worker has it.
        heartbeat_seconds: The chief is lost if it does not answer for this long.
    """
    _Chief.patience = heartbeat_seconds
    if is_chief:
        set_key(_ALIVE, "")


def chief_answers() -> bool:
    """Whether the chief answers now."""
    try:
        answers = get_key(_ALIVE, timeout_ms=_ASK_MS) is not None
    except tf.errors.OpError:
        answers = False
    if answers:
        _Chief.silent_since = None
    elif _Chief.silent_since is None:
        _Chief.silent_since = time.monotonic() - _ASK_MS / 1000
    return answers


def chief_is_silent() -> bool:
    """Whether the chief did not answer the last `chief_answers`."""
    return _Chief.silent_since is not None


def chief_is_lost() -> bool:
    """Whether the chief has not answered `chief_answers` for longer than its heartbeat may take."""
    since = _Chief.silent_since
    return since is not None and time.monotonic() - since >= _Chief.patience


def set_key(key: str, value: str) -> None:
    """Store a value that all workers can read.

    Raises:
        tf.errors.OpError: The chief has ended, or does not answer.
    """
    _call_chief("TFE_InsertConfigKeyValue", key.encode(), value.encode())


def get_key(key: str, *, timeout_ms: int) -> str | None:
    """Return the value that a worker has stored; `None` if there is none within the time."""
    try:
        return str(context.context().get_config_key_value(key, timeout_ms))
    except tf.errors.DeadlineExceededError:
        return None


def delete_key(key: str) -> None:
    """Delete a stored value, if the chief answers."""
    with contextlib.suppress(tf.errors.OpError):
        _call_chief("TFE_DeleteConfigKeyValue", key.encode())


def _call_chief(function: str, *arguments: bytes) -> None:
    """Call a function of TensorFlow that waits for the chief, for as long as a heartbeat may take.

    Raises:
        tf.errors.OpError: The chief has ended, or does not answer.
    """
    failed: list[Exception] = []

    def ask() -> None:
        try:
            call(function, *arguments)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_Chief.patience)
    if thread.is_alive():
        raise tf.errors.UnavailableError(
            None, None, f"worker 0 has not answered for {_Chief.patience:g} seconds"
        )
    if failed:
        raise failed[0]
