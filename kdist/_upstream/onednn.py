"""Whether TensorFlow uses oneDNN's kernels."""

from tensorflow.python.util import _pywrap_util_port


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())
