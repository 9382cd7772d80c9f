"""Sums that add their terms in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

_IS_REWRITTEN = "_grappler_ArithmeticOptimizer_AddOpsRewriteStage"
"""Attribute by which TensorFlow's optimizer (2.21) marks sums that it must not merge."""


def add_in_order(tensors: Sequence[tf.Tensor], name: str | None = None) -> tf.Tensor:
    """Return the sum of tensors, with bits that depend only on the order of the tensors.

    `AddN` of three or more terms begins with the first term that no operation still reads. The bits
    then depend on the time at which threads end (TensorFlow 2.21), and replicas drift apart.
    TensorFlow's optimizer merges sums of two tensors unless they are marked.
    """
    total = tensors[0]
    for tensor in tensors[1:]:
        total = tf.raw_ops.AddN(inputs=[total, tensor], name=name)
        keep_order(total)
    return total


def keep_order(total: tf.Tensor) -> None:
    """Mark a sum of two tensors in a graph: TensorFlow's optimizer does not merge it."""
    if not tf.executing_eagerly():
        total.op._set_attr(_IS_REWRITTEN, AttrValue(b=True))
