"""The key-value store of the workers, in TensorFlow's coordination service."""

import contextlib
import ctypes
import functools
import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

_LIBRARY = "libtensorflow_cc.so.2"


def call_c_function(name: str, *arguments: bytes | int) -> None:
    """Call a function of TensorFlow's C API that takes the context first, and a status last."""
    library = _library()
    status = library.TF_NewStatus()
    try:
        getattr(library, name)(_context(), *arguments, ctypes.c_void_p(status))
        code = library.TF_GetCode(ctypes.c_void_p(status))
        message = library.TF_Message(ctypes.c_void_p(status)).decode(errors="replace")
    finally:
        library.TF_DeleteStatus(ctypes.c_void_p(status))
    if code:
        raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, message)


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / _LIBRARY))  # loaded already
    library.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    return library


def _context() -> Any:
    context.ensure_initialized()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(get(context.context()._context_handle, None))


_ALIVE = "kdist/alive"
_ASK_MS = 500


class _Chief:
    """Whether the chief answered the last time."""

    patience = 10.0
    silent_since: float | None = None


def start_store(*, is_chief: bool, heartbeat_seconds: float) -> None:
    """Begin to use the store."""
    _Chief.patience = heartbeat_seconds
    if is_chief:
        set_key(_ALIVE, "")


def chief_answers() -> bool:
    """Ask the chief, and return whether it answers."""
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
    """Store a value that all workers can read."""
    _call_chief("TFE_InsertConfigKeyValue", key.encode(), value.encode())


def get_key(key: str, *, timeout_ms: int) -> str | None:
    """Return the value that a worker has stored; `None` if there is no value within the time."""
    try:
        return str(context.context().get_config_key_value(key, timeout_ms))
    except tf.errors.DeadlineExceededError:
        return None


def delete_key(key: str) -> None:
    """Delete a stored value, if the chief answers."""
    with contextlib.suppress(tf.errors.OpError):
        _call_chief("TFE_DeleteConfigKeyValue", key.encode())


def _call_chief(function: str, *arguments: bytes) -> None:
    """Call a function of TensorFlow that waits for the chief, but no longer than a heartbeat."""
    failed: list[Exception] = []

    def call() -> None:
        try:
            call_c_function(function, *arguments)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_Chief.patience)
    if thread.is_alive():
        raise tf.errors.UnavailableError(
            None, None, f"worker 0 has not answered for {_Chief.patience:g} seconds"
        )
    if failed:
        raise failed[0]
