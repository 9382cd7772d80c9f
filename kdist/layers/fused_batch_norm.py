"""Batch norm by TensorFlow's fused kernels: cuDNN's on GPUs, oneDNN's on CPUs."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from kdist import _upstream

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


def gradient_fusible(x: Any, dy: Any, axis: int, mask: Any) -> bool:
    """Whether the gradient's kernel takes these, and is faster than XLA's loops.

    That is oneDNN's; TensorFlow's own takes two to three times as long as XLA's.
    """
    return (
        mask is None
        and x.dtype == dy.dtype == tf.float32
        and axis == len(x.shape) - 1
        and _upstream.onednn_is_on()
    )


def fused_gradient(
    dy: Any, x: Any, moments: Moments, gamma: Any, *, epsilon: float
) -> tuple[Any, Any, Any]:
    """The gradients of `x`, gamma and beta; the channels are on the last axis.

    oneDNN's own moments lose the variance where the mean is large; here the moments are given, and
    its sums over 100,000 values are as exact as XLA's.
    """
    axis = len(x.shape) - 1
    dx, dgamma, dbeta, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=_as_images(dy, axis),
        x=_as_images(x, axis),
        scale=gamma,
        reserve_space_1=moments.mean,
        reserve_space_2=moments.variance,
        reserve_space_3=tf.zeros([0]),
        epsilon=epsilon,
        data_format=_data_format(x, axis),
        is_training=True,
    )
    return tf.reshape(dx, tf.shape(x)), dgamma, dbeta


def fused_batch_norm(
    x: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float
) -> tuple[Any, Moments]:
    """Outputs and float32 moments of the batch `x`; a batch may be empty."""
    channels = x.shape[axis]
    nothing = tf.zeros([0])
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=_as_images(x, axis),
        scale=gamma,
        offset=beta,
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format=_data_format(x, axis),
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


def _as_images(x: Any, axis: int) -> Any:
    """The kernels take images only: other ranks are seen as images of one row or one column."""
    if len(x.shape) == 4:
        return x
    channels = x.shape[axis]
    last = axis == len(x.shape) - 1
    return tf.reshape(
        x, (1, -1, 1, channels) if last else (-1, channels, math.prod(x.shape[2:]), 1)
    )


def _data_format(x: Any, axis: int) -> str:
    return "NHWC" if axis == len(x.shape) - 1 else "NCHW"
