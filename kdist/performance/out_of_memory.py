"""Recognize that memory ran out, from an exception or from what a process said."""

import re

# Of Python, NumPy, C++, the kernel, TensorFlow and CUDA. Not `out_of_memory`, which names files in
# tracebacks.
_WORDS = re.compile(
    r"out of memory|OutOfMemory|MemoryError|ResourceExhausted|bad_alloc|\bOOM\b"
    r"|(cannot|unable to|failed to) allocate|Dst tensor is not initialized",
    re.I,
)

# oneDNN's `dnnl_out_of_memory` is 1: with TensorFlow 2.21 a convolution "could not create a
# primitive".
_ONEDNN = "Status: 1, message"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that a CPU's or GPU's memory ran out."""
    if isinstance(error, MemoryError):
        return True
    import tensorflow as tf

    if isinstance(error, tf.errors.ResourceExhaustedError):
        return True
    if isinstance(error, tf.errors.AbortedError) and _ONEDNN in error.message:
        return True
    return isinstance(error, tf.errors.InternalError) and says_out_of_memory(error.message)


def says_out_of_memory(text: str) -> bool:
    """Whether a message, or what a process printed, says that memory ran out."""
    return _WORDS.search(text) is not None
