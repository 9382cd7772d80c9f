"""`GradientTransfer`: how gradients are sent to other replicas."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ..ops.collectives import all_reduce_sum

BUCKET_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class GradientTransfer:
    """Sums gradients over replicas in buckets, which several workers send one after another.

    TensorFlow fills the buckets from the last gradient to the first, about the order in which the
    backward pass computes them. They depend on the variables alone, so are the same on all workers.

    Attributes:
        dtype: Name of the dtype in which gradients are sent; `None` for their own.
        bucket_bytes: Size of a bucket; 0 for one of all gradients. A larger gradient has one of its
            own.
    """

    dtype: str | None = None
    bucket_bytes: int = 0

    def sum(self, gradients: list[Any]) -> list[Any]:
        """Return the gradients, tensors or `tf.IndexedSlices`, summed over replicas."""
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=self.bucket_bytes)
        sent = [self._cast(gradient) for gradient in gradients]
        totals = all_reduce_sum(sent, options if self.bucket_bytes else None)
        return [_cast(total, g.dtype) for total, g in zip(totals, gradients, strict=True)]

    def _cast(self, gradient: Any) -> Any:
        is_wider = gradient.dtype.is_floating and gradient.dtype.size > 2
        return _cast(gradient, self.dtype) if self.dtype and is_wider else gradient


def _cast(gradient: Any, dtype: Any) -> Any:
    if gradient.dtype == dtype:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.cast(gradient.values, dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.cast(gradient, dtype)
