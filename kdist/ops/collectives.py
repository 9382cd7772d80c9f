"""Sums over replicas, in a replica context."""

from typing import Any

import tensorflow as tf

from .. import _upstream


def all_reduce_sum(values: Any, options: Any = None) -> Any:
    """Sum a tensor, or each tensor of a list, over replicas; no gradient flows through it.

    Args:
        values: A tensor or a list of tensors, with the same shapes on all replicas.
        options: A `tf.distribute.experimental.CommunicationOptions`.

    To find variables, TensorFlow's `all_reduce` walks back from the sum through the graphs of all
    replicas. It does so again for each layer, so the time of tracing is quadratic in depth.
    `tf.stop_gradient` ends this walk (`custom_gradient._get_dependent_variables`).
    """
    _upstream.check_no_inner_graph("A layer or the step")
    context = tf.distribute.get_replica_context()
    stopped = tf.nest.map_structure(_stop_gradient, values)
    total = _sum_by_dtype(context, stopped, options)
    batch = _upstream.active_batch()
    if batch is not None:
        tf.nest.map_structure(lambda one: batch.mark(one, "SAME"), total)
    return total


def _sum_by_dtype(context: Any, values: Any, options: Any) -> Any:
    """Sum tensors of each dtype separately, as TensorFlow packs what it sums together."""
    if not isinstance(values, list | tuple):
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values, options)
    results = list(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        chosen = [index for index, value in enumerate(values) if value.dtype == dtype]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [values[i] for i in chosen], options)
        for index, total in zip(chosen, sums, strict=True):
            results[index] = total
    return results


def differentiable_all_reduce_sum(value: Any) -> Any:
    """Sum a tensor over replicas; its gradient is the sum of the replicas' gradients."""

    @tf.custom_gradient
    def total(x: Any) -> Any:
        return all_reduce_sum(x), all_reduce_sum

    return total(tf.convert_to_tensor(value))


def _stop_gradient(value: Any) -> Any:
    if isinstance(value, tf.IndexedSlices):
        values = tf.stop_gradient(value.values)
        return tf.IndexedSlices(values, value.indices, value.dense_shape)
    return tf.stop_gradient(value)
