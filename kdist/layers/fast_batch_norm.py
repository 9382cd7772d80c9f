"""Keras's batch norm in a step under a strategy, in few operations.

`_upstream/one_device_tracing.py` calls `normalize_by_batch` in place of Keras's layer.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from .._upstream.one_device_tracing import has_forward_derivatives
from ..spmd.rematerialization import is_rematerialized

_SMALLEST_EPSILON = 1e-5  # cuDNN's CUDNN_BN_MIN_EPSILON


def normalize_by_batch(layer: Any, inputs: Any) -> Any:
    """Compute a `keras.layers.BatchNormalization` in training mode; `None` if it is not supported.

    The forward pass and the backward pass have one exchange each, and launch few kernels. The
    layer's moving statistics are updated.
    """
    # The custom gradient would keep the inputs of a rematerialized layer in memory.
    if is_rematerialized() or not isinstance(inputs, tf.Tensor) or not _is_supported(layer, inputs):
        return None
    channels, dtype = inputs.shape[-1], _accumulator_dtype(inputs)
    gamma = tf.cast(layer.gamma, dtype) if layer.scale else tf.ones(channels, dtype)
    beta = tf.cast(layer.beta, dtype) if layer.center else tf.zeros(channels, dtype)
    # TensorFlow has no forward-mode derivatives of custom gradients in a graph.
    if has_forward_derivatives(inputs, gamma, beta):
        return None
    y, mean, variance = batch_norm(inputs, gamma, beta, epsilon=layer.epsilon)
    for moving, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        old = keras.ops.cast(moving, value.dtype)
        moving.assign(old * layer.momentum + value * (1.0 - layer.momentum))
    return tf.cast(y, layer.compute_dtype)


def _is_supported(layer: Any, x: tf.Tensor) -> bool:
    rank = x.shape.rank
    return (
        rank is not None
        and rank >= 2
        and layer.axis % rank == rank - 1
        and x.shape[-1] is not None
        and x.dtype.is_floating
        and isinstance(layer.epsilon, int | float)
        and not layer.renorm
        # A subclass may compute its statistics differently.
        and type(layer)._moments is keras.layers.BatchNormalization._moments
    )


def batch_norm(x: Any, gamma: Any, beta: Any, *, epsilon: float) -> tuple[Any, Any, Any]:
    """Normalize a batch, channels last, by the mean and variance of its values.

    Return outputs, mean and biased variance, in float32; in float64 for a batch in float64.
    """
    axes, dtype = list(range(len(x.shape) - 1)), _accumulator_dtype(x)

    @tf.custom_gradient
    def normalize(x: Any, gamma: Any, beta: Any) -> Any:
        values = tf.cast(x, dtype)
        mean, variance = tf.nn.moments(values, axes)

        @tf.custom_gradient
        def gradients(dy: Any, x: Any, gamma: Any) -> Any:
            one, zero = tf.ones_like(mean), tf.zeros_like(mean)
            normalized = _affine(values, mean, variance, one, zero, epsilon)
            dbeta, dgamma = tf.reduce_sum(dy, axes), tf.reduce_sum(dy * normalized, axes)
            # Each value also affects mean and variance (Ioffe & Szegedy 2015, section 3).
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            share = -scale / _values_per_channel(x)
            by_moments = _affine(values, mean, variance, share * dgamma, share * dbeta, epsilon)
            dx = scale * dy + by_moments
            return (tf.cast(dx, x.dtype), dgamma, dbeta), _second_gradient(dy, x, gamma, epsilon)

        def gradient(dy: Any, *_: Any) -> Any:
            # `dy` may be `tf.IndexedSlices`, as after `tf.gather`.
            dy = tf.ensure_shape(tf.convert_to_tensor(dy), x.shape)
            return gradients(tf.cast(dy, dtype), x, gamma)

        return (_affine(values, mean, variance, gamma, beta, epsilon), mean, variance), gradient

    outputs: tuple[Any, Any, Any] = normalize(x, gamma, beta)
    return outputs


def _accumulator_dtype(x: Any) -> tf.DType:
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def _affine(x: Any, mean: Any, variance: Any, scale: Any, offset: Any, epsilon: float) -> Any:
    """Return `scale * (x - mean) / sqrt(variance + epsilon) + offset`."""
    # A 2-D batch may have more than 65,535 rows, the limit of cuDNN's kernel.
    if len(x.shape) != 4 or x.dtype != tf.float32 or epsilon < _SMALLEST_EPSILON:
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)
    y, *_ = tf.raw_ops.FusedBatchNormV3(  # in one pass over the batch
        x=x,
        scale=scale,
        offset=offset,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        is_training=False,
    )
    return y


def _second_gradient(dy: Any, x: Any, gamma: Any, epsilon: float) -> Any:
    """Return the second derivative: the gradient of `gradients`, by TensorFlow's tapes."""

    def gradient(*upstream: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch([dy, x, gamma])
            with tf.GradientTape() as inner:
                beta = tf.zeros_like(gamma)
                inner.watch([x, gamma, beta])
                values = tf.cast(x, dy.dtype)
                mean, variance = tf.nn.moments(values, list(range(len(x.shape) - 1)))
                y = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
            gradients = inner.gradient(y, [x, gamma, beta], output_gradients=dy)
        return outer.gradient(gradients, [dy, x, gamma], output_gradients=upstream)

    return gradient


def _values_per_channel(x: Any) -> Any:
    sample, dtype = x.shape[1:-1], _accumulator_dtype(x)
    if sample.is_fully_defined():
        return tf.cast(tf.shape(x)[0], dtype) * math.prod(sample)
    return tf.cast(tf.reduce_prod(tf.shape(x)[:-1]), dtype)
