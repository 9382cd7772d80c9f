"""Batch norm by TensorFlow's fused kernels: cuDNN's on GPUs, oneDNN's on CPUs."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from .. import _upstream
from .batch_norm import Moments

FUSED_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
ONEDNN_CHANNELS = 8  # float32 numbers in an AVX2 vector
SMALLEST_EPSILON = 1e-5  # cuDNN's CUDNN_BN_MIN_EPSILON


def fusible(x: Any, axis: int, epsilon: float, mask: Any) -> bool:
    """Whether the kernel supports `x`, with the channels on `axis` (counted from 0)."""
    return (
        mask is None
        and x.dtype in FUSED_DTYPES
        and epsilon >= SMALLEST_EPSILON
        and x.shape[axis] is not None
        and (axis == len(x.shape) - 1 or (axis == 1 and x.shape[2:].is_fully_defined()))
    )


def gradient_fusible(x: Any, dy: Any, axis: int, mask: Any) -> bool:
    """Whether the gradient's kernel supports these, is faster than XLA's loops and as accurate.

    This holds for oneDNN's kernel if the channels fill its vectors. Otherwise it takes three times
    as long, and adds up value by value, as XLA's own kernel does in a compiled step. TensorFlow's
    kernel takes two to three times as long as the loops.
    """
    return (
        mask is None
        and x.dtype == dy.dtype == tf.float32
        and axis == len(x.shape) - 1
        and x.shape[axis] % ONEDNN_CHANNELS == 0
        and _upstream.onednn_is_on()
        and not _upstream.is_compiled_by_xla()
    )


def fused_gradient(
    dy: Any, x: Any, moments: Moments, gamma: Any, *, epsilon: float
) -> tuple[Any, Any, Any]:
    """Return the gradients of `x`, gamma and beta, for channels last and samples of known shape.

    oneDNN's moments lose the variance if the mean is large. Here the moments are given, and
    oneDNN's sums over 100,000 values are as accurate as XLA's.
    """
    # oneDNN sums image by image: a single row of all positions would be one long sum.
    sides = [1, *x.shape[1:-1].as_list()]
    images = (-1, math.prod(sides[:-1]), sides[-1], x.shape[-1])
    dx, dgamma, dbeta, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=tf.reshape(dy, images),
        x=tf.reshape(x, images),
        scale=gamma,
        reserve_space_1=moments.mean,
        reserve_space_2=moments.variance,
        reserve_space_3=tf.zeros([0]),
        epsilon=epsilon,
        is_training=True,
    )
    return tf.reshape(dx, tf.shape(x)), dgamma, dbeta


def fused_batch_norm(
    x: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float
) -> tuple[Any, Moments]:
    """Return outputs and float32 moments of the batch `x`, which may be empty.

    The kernel supports only images, so other ranks are reshaped to images of one row or column.
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
    # The kernel's variance is unbiased: for one value it is NaN on some devices. For no values,
    # mean and variance are NaN.
    biased = tf.math.multiply_no_nan(variance, tf.math.divide_no_nan(count - 1, count))
    nonempty = count > 0
    return tf.reshape(y, tf.shape(x)), Moments(
        tf.broadcast_to(count, [channels]),
        tf.where(nonempty, mean, 0),
        tf.where(nonempty, biased, 0),
    )
