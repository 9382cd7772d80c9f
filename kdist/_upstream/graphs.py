"""oneDNN's kernels, derivatives in forward mode, and custom gradients."""

from typing import Any

from tensorflow.python.eager import forwardprop_util
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.util import _pywrap_util_port


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def has_forward_derivatives(*tensors: Any) -> bool:
    """Whether a `tf.autodiff.ForwardAccumulator` computes derivatives of one of the tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).tangents)


def forget_custom_gradients() -> None:
    """Discard the graphs of custom gradients that were traced so far.

    A traced function can still be run, and a gradient that was traced with the function, too. Only
    a gradient that was not traced with its function can no longer be computed.
    """
    for name in list(gradient_registry.list()):
        if name.startswith("CustomGradient-"):
            gradient_registry._registry.pop(name, None)
