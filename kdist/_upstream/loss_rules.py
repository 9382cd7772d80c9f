"""How Keras's losses, metrics and added losses are reduced while several replicas train."""

import threading
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as keras_loss

from .active_batch import active_batch
from .replacing import replace

# What a thread's step has added to its losses, and how it computes them.
_active = threading.local()


def _losses() -> dict[int, list[Any]]:
    """What layers added to the loss of this thread's step, by the layer's id."""
    batch = active_batch()
    if getattr(_active, "batch", None) is not batch:
        _active.batch, _active.losses = batch, {}
    return _active.losses


@replace(keras_loss, "scale_loss_for_distribution")
def _scale(original: Callable[..., Any], value: Any) -> Any:
    """No 1 / replicas, which is wrong for uneven batches and rounded to float32."""
    return value if active_batch() else original(value)


@replace(keras_loss, "unscale_loss_for_distribution")
def _unscale(original: Callable[..., Any], value: Any) -> Any:
    batch = active_batch()
    return batch.zero_if_empty(value) if batch else original(value)


@replace(keras_loss, "reduce_weighted_values")
def _reduce(
    original: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    loss = original(values, sample_weight, mask, reduction, dtype)
    batch = active_batch()
    if batch is None or getattr(_active, "whole_batch", False):
        return loss
    _active.scalar = not len(values.shape)
    return batch.rescale(loss, values, sample_weight, mask, reduction)


# Not means over samples: sums over the batch in a ratio, and pairs of samples.
_OF_A_WHOLE_BATCH = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


@replace(keras.losses.Loss, "__call__")
def _call_loss(
    original: Callable[..., Any], loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a loss is no mean over samples: no sum of parts is exact there.

    A loss that returns one number may be any function of the batch.
    """
    batch = active_batch()
    if batch is None or getattr(_active, "whole_batch", False):
        return original(loss, y_true, y_pred, sample_weight)
    _active.scalar = False
    if getattr(loss, "fn", None) not in _OF_A_WHOLE_BATCH:
        value = original(loss, y_true, y_pred, sample_weight)
        if not _active.scalar:
            return value
    mask = keras.src.backend.get_keras_mask(y_pred)
    data = [
        None if v is None else batch.all_gather(v) for v in (y_true, y_pred, sample_weight, mask)
    ]
    if mask is not None:
        keras.src.backend.set_keras_mask(data[1], data[3])
    _active.whole_batch = True
    try:
        return original(loss, *data[:3])
    finally:
        _active.whole_batch = False


@replace(TensorFlowTrainer, "_aggregate_additional_loss")
def _additional(original: Callable[..., Any], model: keras.Model, loss: Any) -> Any:
    batch = active_batch()
    return original(model, batch.rescale_added(loss) if batch else loss)


@replace(keras.metrics.Mean, "update_state")
def _update_mean(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A mean over this replica's samples counts by their share, not as one update of many."""
    batch = active_batch()
    if batch and sample_weight is None and not len(getattr(values, "shape", ())):
        values, sample_weight = batch.zero_if_empty(values), batch.fraction()
    return original(metric, values, sample_weight)


@replace(keras.layers.BatchNormalization, "_moments")
def _moments(original: Callable[..., Any], layer: Any, inputs: Any, mask: Any) -> Any:
    """Synchronized where there is a mask too, and without replicas that have no sample."""
    batch = active_batch()
    if batch is None or not layer.synchronized:
        return original(layer, inputs, mask)
    # As in Keras, where there is a mask.
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


@replace(keras.layers.Layer, "add_loss")
def _add_loss(original: Callable[..., Any], layer: keras.layers.Layer, loss: Any) -> None:
    """Kept for this replica alone.

    Layers are shared, and a synchronized batch norm behind this one lets the next replica begin
    its forward pass, which would throw away what was added here and add its own.
    """
    original(layer, loss)
    if active_batch():
        _losses().setdefault(id(layer), []).extend(layer._losses)
        layer._losses.clear()


@replace(keras.layers.Layer, "_get_own_losses")
def _get_own_losses(original: Callable[..., Any], layer: keras.layers.Layer) -> list[Any]:
    return [*_losses().get(id(layer), ())] if active_batch() else original(layer)


@replace(keras.layers.Layer, "_clear_losses")
def _clear_losses(original: Callable[..., Any], layer: keras.layers.Layer) -> None:
    if active_batch():
        _losses().pop(id(layer), None)
    original(layer)  # goes on to the layers inside


def present_samples() -> Any:
    """As `ActiveBatch.is_nonempty`; true outside of a step on several replicas."""
    batch = active_batch()
    return batch.is_nonempty() if batch else tf.constant(True)


def effective_sample_weight(sample_weight: Any, mask: Any, dtype: Any, reduction: str) -> Any:
    """The weights by which Keras multiplies a loss's values."""
    if mask is not None:
        mask = keras.ops.convert_to_tensor(mask, dtype=dtype)
    return keras_loss.apply_mask(sample_weight, mask, dtype=dtype, reduction=reduction)
