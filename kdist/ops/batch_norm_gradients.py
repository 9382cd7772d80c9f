"""Batch norm's outputs and moments with their gradients, on one or several replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .batch_norm import Kernels, Moments, merge
from .compilation import compiled_method, worth_compiling
from .dense_gradient import dense_gradient
from .fused_batch_norm import fused_gradient, gradient_fusible


def across_replicas(
    context: Any, kernels: Kernels, x: Any, gamma: Any, beta: Any, mask: Any
) -> tuple[Any, Moments]:
    """Return outputs and global moments, on one of the replicas of a strategy of TensorFlow.

    There is one collective in the forward and one in the backward pass. The gradients of gamma and
    beta are this replica's sums, like those of any weight: the training step sums over replicas.
    """

    def sum_of_replicas(value: Any) -> Any:
        # TensorFlow's `all_reduce` looks for variables in the graphs of all replicas: a time that
        # is quadratic in depth. `stop_gradient` ends its walk.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stop_gradient(value))

    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        nonempty = tf.shape(x)[0] > 0
        local = tf.where(nonempty, compiled_method(kernels, "local_moments", x)(x, mask), 0)
        # A sum of tensors that are zero outside the replica's row gathers all rows in a single
        # collective, without exchanging shapes.
        replica, replicas = context.replica_id_in_sync_group, context.num_replicas_in_sync
        own_row = tf.one_hot(replica, replicas, dtype=local.dtype)
        moments = merge(sum_of_replicas(own_row[:, None, None] * local))
        y = compiled_method(kernels, "normalize", x)(x, moments, gamma, beta)

        def gradient(dy: Any, *_: Any) -> Any:
            dy = dense_gradient(dy, x)
            sums = compiled_method(kernels, "gradient_sums", x)(dy, x, moments)
            sums = tf.where(nonempty, sums, 0)
            total = sum_of_replicas(sums)
            dx = compiled_method(kernels, "input_gradient", x)(dy, x, moments, gamma, total, mask)
            return _differentiable_once(dx, sums[1], sums[0])

        return (y, moments), gradient

    outputs: tuple[Any, Moments] = batch_norm(x, gamma, beta)
    return outputs


def in_global_view(
    kernels: Kernels, x: Any, gamma: Any, beta: Any, mask: Any
) -> tuple[Any, Moments]:
    """Return outputs and moments in a step that will be divided over replicas.

    Each kernel has a sharding rule, so there is one collective in the forward and one in the
    backward pass.
    """

    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        statistics = compiled_method(kernels, "local_moments", x)(x, mask)
        moments = merge(statistics[tf.newaxis])
        y = compiled_method(kernels, "normalize", x)(x, moments, gamma, beta)

        def gradient(dy: Any, *_: Any) -> Any:
            dy = dense_gradient(dy, x)
            sums = compiled_method(kernels, "gradient_sums", x)(dy, x, moments)
            dx = compiled_method(kernels, "input_gradient", x)(dy, x, moments, gamma, sums, mask)
            return _differentiable_once(dx, sums[1], sums[0])

        return (y, moments), gradient

    outputs: tuple[Any, Moments] = batch_norm(x, gamma, beta)
    return outputs


def on_one_replica(
    kernels: Kernels, x: Any, gamma: Any, beta: Any, mask: Any
) -> tuple[Any, Moments]:
    """Return outputs and moments if one replica has the whole batch."""
    if not worth_compiling(x):
        return kernels.forward(x, gamma, beta, mask)

    # TensorFlow's gradient of a compiled function would store its intermediate values.
    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        y, moments = compiled_method(kernels, "forward", x)(x, gamma, beta, mask)

        def gradient(dy: Any, *_: Any) -> Any:
            dy = dense_gradient(dy, x)
            if gradient_fusible(x, dy, kernels.axis, mask):
                gradients = fused_gradient(dy, x, moments, gamma, epsilon=kernels.epsilon)
                return _differentiable_once(*gradients)
            dx, sums = compiled_method(kernels, "backward", x)(dy, x, moments, gamma, mask)
            return _differentiable_once(dx, sums[1], sums[0])

        return (y, moments), gradient

    outputs: tuple[Any, Moments] = batch_norm(x, gamma, beta)
    return outputs


def _differentiable_once(*gradients: Any) -> tuple[Any, ...]:
    message = (
        "SyncBatchNormalization has no second derivative; use keras.layers.BatchNormalization."
    )
    return tuple(tf.raw_ops.PreventGradient(input=g, message=message) for g in gradients)
