"""Batch norm by TensorFlow's fused kernel: cuDNN's on GPUs."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from .batch_norm_kernels import Moments

FUSED_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
SMALLEST_EPSILON = 1e-5  # cuDNN's CUDNN_BN_MIN_EPSILON


def fusible(x: Any, axis: int, epsilon: float, mask: Any) -> bool:
    """Whether the kernel takes `x`, with the channels on `axis` (counted from 0)."""
    return (
        mask is None
        and x.dtype in FUSED_DTYPES
        and epsilon >= SMALLEST_EPSILON
        and x.shape[axis] is not None
        and (axis == len(x.shape) - 1 or (axis == 1 and x.shape[2:].is_fully_defined()))
    )


def fused_batch_norm(
    x: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float
) -> tuple[Any, Moments]:
    """Outputs and float32 moments of the batch `x`; a batch may be empty.

    The kernel takes images only, so other ranks are seen as images of one row or one column.
    """
    channels = x.shape[axis]
    last = axis == len(x.shape) - 1
    images = x
    if len(x.shape) != 4:
        shape = (1, -1, 1, channels) if last else (-1, channels, math.prod(x.shape[2:]), 1)
        images = tf.reshape(x, shape)
    nothing = tf.zeros([0])
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=gamma,
        offset=beta,
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format="NHWC" if last else "NCHW",
        is_training=True,
    )
    count = tf.cast(tf.size(x, tf.int64) // channels, tf.float32)
    # The kernel's variance is the unbiased one, of one value NaN on some devices; of none, it and
    # the mean are NaN.
    biased = tf.math.multiply_no_nan(variance, tf.math.divide_no_nan(count - 1, count))
    some = count > 0
    return tf.reshape(y, tf.shape(x)), Moments(
        tf.broadcast_to(count, [channels]),
        tf.where(some, mean, 0),
        tf.where(some, biased, 0),
    )
