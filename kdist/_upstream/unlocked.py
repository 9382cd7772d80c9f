"""Call TensorFlow's C API, while other threads of Python run.

TensorFlow's own binding keeps Python's lock in the functions that ask the chief: no thread, and no
handler of a signal, runs until it answers. If its process stands still, that is never.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

_LIBRARY = "libtensorflow_cc.so.2"


def call(name: str, *arguments: bytes | int) -> None:
    """Call a function that takes the context first, and a status last.

    Args:
        name: Such as `TFE_InsertConfigKeyValue`.
        arguments: Between the two.

    Raises:
        tf.errors.OpError: It failed.
    """
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
