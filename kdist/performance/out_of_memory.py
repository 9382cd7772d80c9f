"""`is_out_of_memory`: recognize that memory ran out."""

import re

# What a GPU without memory says under other names.
_WORDS = re.compile(r"out of memory|OOM|Dst tensor is not initialized|failed to allocate", re.I)

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
    return isinstance(error, tf.errors.InternalError) and bool(_WORDS.search(error.message))
