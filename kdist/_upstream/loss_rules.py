"""How Keras's losses, metrics and added losses are reduced while several replicas train."""

import threading
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as keras_loss
from keras.src.random.seed_generator import global_seed_generator
from keras.src.trainers.trainer import Trainer

from .active_batch import ActiveBatch, active_batch, check_no_inner_graph
from .draws import drawing_for_all
from .replacing import replace, subclasses

# Replicas are traced in threads of their own.
_thread = threading.local()


def _has_whole_batch() -> bool:
    return getattr(_thread, "whole_batch", False)


def on_whole_batch(batch: ActiveBatch, compute: Callable[..., Any], *data: Any) -> Any:
    """Compute a number on the rows of all replicas: the same on each, as no part of it is exact."""
    gathered = [gather(batch, structure) for structure in data]
    _thread.whole_batch = True
    try:
        with drawing_for_all():
            return batch.mark(compute(*gathered), "SAME")
    finally:
        _thread.whole_batch = False


def gather(batch: ActiveBatch, structure: Any) -> Any:
    """The rows of all replicas of every tensor in a structure, masks too."""
    if _has_whole_batch():
        return structure

    def gathered(leaf: Any) -> Any:
        if leaf is None or not hasattr(leaf, "shape") or not len(leaf.shape):
            return leaf
        rows = batch.all_gather(leaf)
        mask = keras.src.backend.get_keras_mask(leaf)
        if mask is not None:
            keras.src.backend.set_keras_mask(rows, batch.all_gather(mask))
        return rows

    return keras.tree.map_structure(gathered, structure, none_is_leaf=False)


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
    batch = active_batch()
    if batch is None or _has_whole_batch():
        return original(values, sample_weight, mask, reduction, dtype)
    values = keras.ops.convert_to_tensor(values, dtype=dtype)
    loss = original(values, sample_weight, mask, reduction, dtype)
    _thread.of_whole_batch = not len(values.shape) or batch.mixes_samples(values)
    return batch.rescale(loss, values, sample_weight, mask, reduction)


# Not means over samples: sums over the batch in a ratio, and pairs of samples.
_OF_A_WHOLE_BATCH = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


@replace(keras.losses.Loss, "__call__")
def _call_loss(
    original: Callable[..., Any], loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a loss is no mean over samples: no sum of parts is exact there.

    A loss that returns one number, or values that each depend on other samples, may be any function
    of the batch.
    """
    batch = active_batch()
    if batch is None or _has_whole_batch():
        return original(loss, y_true, y_pred, sample_weight)
    _thread.of_whole_batch = False
    if getattr(loss, "fn", None) not in _OF_A_WHOLE_BATCH:
        for leaf in keras.tree.flatten((y_true, y_pred)):
            batch.mark_rows(leaf)
        value = original(loss, y_true, y_pred, sample_weight)
        if not _thread.of_whole_batch:
            return batch.mark(value, "ROWS" if len(value.shape) else "MEAN")
    return _with_whole_batch(batch, original, loss, (y_true, y_pred, sample_weight), {})


def _call_own_loss(original: Callable[..., Any], loss: Any, *args: Any, **options: Any) -> Any:
    """A loss that computes everything itself may be any function of the batch."""
    batch = active_batch()
    if batch is None or _has_whole_batch():
        return original(loss, *args, **options)
    return _with_whole_batch(batch, original, loss, args, options)


def _with_whole_batch(
    batch: ActiveBatch, original: Callable[..., Any], owner: Any, args: Any, options: Any
) -> Any:
    names = list(options)

    def whole(*data: Any) -> Any:
        positional, named = data[: len(args)], data[len(args) :]
        return original(owner, *positional, **dict(zip(names, named, strict=True)))

    return on_whole_batch(batch, whole, *args, *options.values())


def _compute_loss(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """On the global batch, unless it adds up means and sums over the samples."""
    batch = active_batch()
    if batch is None or _has_whole_batch() or getattr(_thread, "computing_loss", False):
        return original(model, *args, **options)
    _thread.computing_loss = True
    try:
        if not tf.executing_eagerly():  # which leaves no graph to read
            before = [(state, tf.identity(state.value)) for state in _states(model)]
            with batch.holding_warnings() as held:
                loss = original(model, *args, **options)
            rescaled = loss if len(loss.shape) else batch.rescale_number(loss)
            if rescaled is not None:
                for number in held:
                    batch.warn(number)
                return batch.mark(rescaled, "ROWS" if len(loss.shape) else "MEAN")
            for state, value in before:
                state.assign(value)
        return _with_whole_batch(batch, original, model, args, options)
    finally:
        _thread.computing_loss = False


def _states(model: keras.Model) -> list[keras.Variable]:
    """What computing a loss may change: seeds, metrics, the layers' own states."""
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    seeds = [global_seed_generator().state]
    states = [*model.non_trainable_variables, *metrics, *seeds]
    return list({id(state): state for state in states}.values())


def watch_losses(model: keras.Model) -> None:
    """Replace what the user's kinds of losses, and the model's own `compute_loss`, compute."""
    for kind in subclasses(keras.losses.Loss):
        if "__call__" in vars(kind) and not kind.__module__.startswith("keras."):
            replace(kind, "__call__")(_call_own_loss)
    for kind in type(model).__mro__:
        if "compute_loss" in vars(kind) and kind is not Trainer:
            replace(kind, "compute_loss")(_compute_loss)


@replace(TensorFlowTrainer, "_aggregate_additional_loss")
def _additional(original: Callable[..., Any], model: keras.Model, loss: Any) -> Any:
    batch = active_batch()
    if batch is None or _has_whole_batch():
        return original(model, loss)
    return original(model, batch.rescale_added(loss))


@replace(keras.metrics.Mean, "update_state")
def _update_mean(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A mean over this replica's samples counts by their share, not as one update of many."""
    batch = active_batch()
    if batch and sample_weight is None and not len(getattr(values, "shape", ())):
        values = batch.zero_if_empty(batch.rescale_or_warn(keras.ops.convert_to_tensor(values)))
        sample_weight = batch.fraction()
    return original(metric, values, sample_weight)


@replace(keras.metrics.Sum, "update_state")
def _update_sum(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A number counts once in the global batch, not once on each replica."""
    batch = active_batch()
    if batch and sample_weight is None and not len(getattr(values, "shape", ())):
        values = keras.ops.cast(values, metric.dtype)
        values = batch.zero_if_empty(batch.rescale_or_warn(values))
        sample_weight = batch.fraction()
    return original(metric, values, sample_weight)


@replace(keras.metrics.MeanMetricWrapper, "update_state")
def _update_wrapper(
    original: Callable[..., Any], metric: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a function gives one number that is no mean over the samples."""
    batch = active_batch()
    if batch is None or _has_whole_batch() or isinstance(metric._fn, keras.losses.Loss):
        return original(metric, y_true, y_pred, sample_weight)
    values = keras.ops.convert_to_tensor(metric._fn(y_true, y_pred, **metric._fn_kwargs))
    if len(values.shape) or batch.rescale_number(values) is not None:
        return original(metric, y_true, y_pred, sample_weight)

    def whole(y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        original(metric, y_true, y_pred, sample_weight)

    return on_whole_batch(batch, whole, y_true, y_pred, sample_weight)


@replace(keras.layers.BatchNormalization, "_moments")
def _moments(original: Callable[..., Any], layer: Any, inputs: Any, mask: Any) -> Any:
    """Synchronized where there is a mask too, and without replicas that have no sample."""
    batch = active_batch()
    if batch is None or not layer.synchronized:
        return original(layer, inputs, mask)
    check_no_inner_graph(f"The layer {layer.name!r}")
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


def present_samples() -> Any:
    """As `ActiveBatch.is_nonempty`; true outside of a step on several replicas."""
    batch = active_batch()
    return batch.is_nonempty() if batch else tf.constant(True)


def effective_sample_weight(sample_weight: Any, mask: Any, dtype: Any, reduction: str) -> Any:
    """The weights by which Keras multiplies a loss's values."""
    if mask is not None:
        mask = keras.ops.convert_to_tensor(mask, dtype=dtype)
    return keras_loss.apply_mask(sample_weight, mask, dtype=dtype, reduction=reduction)
