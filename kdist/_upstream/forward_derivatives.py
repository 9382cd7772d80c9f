"""Derivatives in forward mode."""

from typing import Any

from tensorflow.python.eager import forwardprop_util


def has_forward_derivatives(*tensors: Any) -> bool:
    """Whether a `tf.autodiff.ForwardAccumulator` computes derivatives of one of the tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).tangents)
