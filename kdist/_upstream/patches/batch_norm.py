"""Patch Keras's synchronized batch norm for masks and for replicas without samples."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..active_batch import active_batch, check_no_inner_graph
from ..patching import Patch


def _moments(original: Callable[..., Any], layer: Any, inputs: Any, mask: Any) -> Any:
    """Synchronize even with a mask, and exclude replicas without samples."""
    batch = active_batch()
    if batch is None:
        return original(layer, inputs, mask)
    if not layer.synchronized:  # which is warned of by the layer's name
        moments = original(layer, inputs, mask)
        return tuple(batch.mark(moment, "SAME") for moment in moments)
    check_no_inner_graph(f"The layer {layer.name!r}")
    # As Keras does with a mask.
    epsilon = 0.0 if mask is None else keras.config.epsilon()
    mask = tf.ones(tf.shape(inputs)[:-1]) if mask is None else mask
    weight = tf.cast(keras.ops.broadcast_to(mask[..., None], tf.shape(inputs)), inputs.dtype)
    weight *= tf.cast(batch.is_nonempty(), weight.dtype)
    inputs = tf.where(batch.is_nonempty(), inputs, tf.zeros_like(inputs))

    def global_sum(values: Any) -> Any:
        values = tf.where(weight > 0, values, tf.zeros_like(values))
        return batch.all_reduce_sum(tf.reduce_sum(values, layer._reduction_axes))

    count = global_sum(weight) + epsilon
    mean = global_sum(inputs) / count
    return mean, global_sum(tf.square(inputs - mean)) / count


PATCHES = (
    Patch(
        owner=keras.layers.BatchNormalization,
        name="_moments",
        replacement=_moments,
        why="With a mask, `synchronized=True` uses the moments of a single replica.",
        canary="test_a_mask_disables_synchronization",
    ),
)
