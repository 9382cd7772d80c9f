"""Patch the reduction of losses, and losses that layers add, for several replicas."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as keras_loss
from keras.src.random.seed_generator import global_seed_generator
from keras.src.trainers.trainer import Trainer

from ..active_batch import active_batch
from ..gathered_batch import call_on_gathered_batch, is_on_gathered_batch
from ..patching import Patch, subclasses

# Each replica is traced in its own thread.
_thread = threading.local()


def _scale(original: Callable[..., Any], value: Any) -> Any:
    """Do not multiply by 1 / replicas: it is wrong for uneven batches and rounded to float32."""
    return value if active_batch() else original(value)


def _unscale(original: Callable[..., Any], value: Any) -> Any:
    batch = active_batch()
    return batch.zero_if_empty(value) if batch else original(value)


def _reduce(
    original: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    batch = active_batch()
    if batch is None or is_on_gathered_batch() or getattr(_thread, "of_statistics", False):
        return original(values, sample_weight, mask, reduction, dtype)
    values = keras.ops.convert_to_tensor(values, dtype=dtype)
    loss = original(values, sample_weight, mask, reduction, dtype)
    _thread.mixes_samples = not len(values.shape) or batch.mixes_samples(values)
    return batch.losses.rescale(loss, values, sample_weight, mask, reduction)


# Not means over samples: ratios of sums over the batch, or values of pairs of samples.
_NOT_MEANS = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


def _call_loss(
    original: Callable[..., Any], loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """Compute a loss on the global batch if it is not a mean over samples.

    A loss that returns one number, or values that depend on several samples, may be any function of
    the batch.
    """
    batch = active_batch()
    if batch is None or is_on_gathered_batch():
        return original(loss, y_true, y_pred, sample_weight)
    leaves = keras.tree.flatten((y_true, y_pred))
    if batch.is_custom_step and any(batch.kind(x) in ("MEAN", "SUM", "COUNT") for x in leaves):
        _thread.of_statistics = True  # not of samples
        try:
            return original(loss, y_true, y_pred, sample_weight)
        finally:
            _thread.of_statistics = False
    pairs = [leaf for leaf in leaves if batch.kind(leaf) == "PAIRS"]
    if batch.kind(sample_weight) in ("PAIRS", "OTHER"):
        pairs.append(sample_weight)
    if pairs:
        value = original(loss, y_true, y_pred, sample_weight)
        if _is_computing_loss():
            return batch.mark(value, "PAIRS")  # so that it is computed on the global batch
        for leaf in pairs:
            batch.losses.warn(leaf)
        return batch.mark(value, "ROWS" if len(value.shape) else "MEAN")
    _thread.mixes_samples = False
    if getattr(loss, "fn", None) not in _NOT_MEANS:
        for leaf in leaves:
            batch.mark_rows(leaf)
        value = original(loss, y_true, y_pred, sample_weight)
        if not _thread.mixes_samples:
            return batch.mark(value, "ROWS" if len(value.shape) else "MEAN")
    return call_on_gathered_batch(batch, original, loss, (y_true, y_pred, sample_weight), {})


def _call_custom_loss(original: Callable[..., Any], loss: Any, *args: Any, **options: Any) -> Any:
    """Compute a loss with a custom `__call__` on the global batch."""
    batch = active_batch()
    if batch is None or is_on_gathered_batch():
        return original(loss, *args, **options)
    return call_on_gathered_batch(batch, original, loss, args, options)


def _custom_losses(model: Any) -> Iterable[type]:
    """Return all custom subclasses of `Loss`, even if not in the model: a step may use any."""
    del model
    classes = subclasses(keras.losses.Loss)
    return [one for one in classes if not one.__module__.startswith("keras.")]


def _compute_loss(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Compute the loss on the global batch, unless it adds up means and sums over samples."""
    batch = active_batch()
    if batch is None or is_on_gathered_batch() or _is_computing_loss():
        return original(model, *args, **options)
    _thread.computing_loss = True
    try:
        if not tf.executing_eagerly():  # otherwise there is no graph to read
            for leaf in keras.tree.flatten((args, options)):
                batch.mark_rows(leaf)
            before = [(state, tf.identity(state.value)) for state in _states(model)]
            with batch.losses.deferred_warnings() as numbers:
                loss = original(model, *args, **options)
            rescaled = loss if len(loss.shape) else batch.losses.rescale_number(loss)
            if rescaled is not None:
                for number in numbers:
                    batch.losses.warn(number)
                return batch.mark(rescaled, "ROWS" if len(loss.shape) else "MEAN")
            for state, value in before:
                state.assign(value)
        return call_on_gathered_batch(batch, original, model, args, options)
    finally:
        _thread.computing_loss = False


def _is_computing_loss() -> bool:
    """Whether the current thread is in a custom `compute_loss`."""
    return getattr(_thread, "computing_loss", False)


def _states(model: keras.Model) -> list[keras.Variable]:
    """Return the variables that computing a loss may change: seeds, metrics, layers' states."""
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    seeds = [global_seed_generator().state]
    states = [*model.non_trainable_variables, *metrics, *seeds]
    return list({id(state): state for state in states}.values())


def _model_classes(model: Any) -> Iterable[type]:
    """Return the model's class and its base classes, without Keras's `Trainer`."""
    return [one for one in type(model).__mro__ if one is not Trainer]


def _add_losses(original: Callable[..., Any], model: keras.Model, loss: Any) -> Any:
    batch = active_batch()
    if batch is None or is_on_gathered_batch():
        return original(model, loss)
    return original(model, batch.losses.rescale_added(loss))


PATCHES = (
    Patch(
        owner=keras_loss,
        name="scale_loss_for_distribution",
        replacement=_scale,
        why="Weights each replica's mean by 1 / replicas, whatever its number of samples, and"
        " rounds this to float32.",
        canary="test_losses_are_divided_by_replicas_rounded_to_float32",
    ),
    Patch(
        owner=keras_loss,
        name="unscale_loss_for_distribution",
        replacement=_unscale,
        why="Reverts `scale_loss_for_distribution` for the logs.",
        canary="test_losses_are_divided_by_replicas_rounded_to_float32",
    ),
    Patch(
        owner=keras_loss,
        name="reduce_weighted_values",
        replacement=_reduce,
        why="Computes sums, masked and weighted means from the samples of one replica.",
        canary="test_uneven_batches_are_weighted_evenly",
    ),
    Patch(
        owner=keras.losses.Loss,
        name="__call__",
        replacement=_call_loss,
        why="Averages a loss over replicas even if it is not a mean over samples, such as Dice.",
        canary="test_losses_and_metrics_that_are_not_means_are_averaged",
    ),
    Patch(
        owner=keras.losses.Loss,
        name="__call__",
        replacement=_call_custom_loss,
        why="The same for custom losses.",
        canary="test_losses_and_metrics_that_are_not_means_are_averaged",
        classes=_custom_losses,
    ),
    Patch(
        owner=Trainer,
        name="compute_loss",
        replacement=_compute_loss,
        why="The same for a custom `compute_loss`.",
        canary="test_a_custom_compute_loss_is_averaged_over_replicas",
        classes=_model_classes,
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="_aggregate_additional_loss",
        replacement=_add_losses,
        why="Averages losses from `add_loss` over replicas, even sums over the samples.",
        canary="test_added_sums_are_averaged_over_replicas",
    ),
)
