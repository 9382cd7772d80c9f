"""oneDNN's kernels, and derivatives in forward mode."""

from typing import Any

from tensorflow.python.eager import forwardprop_util
from tensorflow.python.util import _pywrap_util_port


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def has_forward_derivatives(*tensors: Any) -> bool:
    """Whether a `tf.autodiff.ForwardAccumulator` computes derivatives of one of the tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).tangents)
