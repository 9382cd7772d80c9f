"""How Keras reduces losses, and what layers add to them, while several replicas train."""

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
from ..patching import Patch, subclasses
from ..whole_batch import call_with_whole_batch, has_whole_batch

# Replicas are traced in threads of their own.
_thread = threading.local()


def _scale(original: Callable[..., Any], value: Any) -> Any:
    """No 1 / replicas, which is wrong for uneven batches and rounded to float32."""
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
    if batch is None or has_whole_batch():
        return original(values, sample_weight, mask, reduction, dtype)
    values = keras.ops.convert_to_tensor(values, dtype=dtype)
    loss = original(values, sample_weight, mask, reduction, dtype)
    _thread.of_whole_batch = not len(values.shape) or batch.mixes_samples(values)
    return batch.losses.rescale(loss, values, sample_weight, mask, reduction)


# Not means over samples: sums over the batch in a ratio, and pairs of samples.
_OF_A_WHOLE_BATCH = (keras.losses.dice, keras.losses.tversky, keras.losses.circle)


def _call_loss(
    original: Callable[..., Any], loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a loss is no mean over samples: no sum of parts is exact there.

    A loss that returns one number, or values that each depend on other samples, may be any function
    of the batch.
    """
    batch = active_batch()
    if batch is None or has_whole_batch():
        return original(loss, y_true, y_pred, sample_weight)
    _thread.of_whole_batch = False
    if getattr(loss, "fn", None) not in _OF_A_WHOLE_BATCH:
        for leaf in keras.tree.flatten((y_true, y_pred)):
            batch.mark_rows(leaf)
        value = original(loss, y_true, y_pred, sample_weight)
        if not _thread.of_whole_batch:
            return batch.mark(value, "ROWS" if len(value.shape) else "MEAN")
    return call_with_whole_batch(batch, original, loss, (y_true, y_pred, sample_weight), {})


def _call_own_loss(original: Callable[..., Any], loss: Any, *args: Any, **options: Any) -> Any:
    """A loss that computes everything itself may be any function of the batch."""
    batch = active_batch()
    if batch is None or has_whole_batch():
        return original(loss, *args, **options)
    return call_with_whole_batch(batch, original, loss, args, options)


def _own_losses(model: Any) -> Iterable[type]:
    """Kinds of losses that a user wrote, whichever the model has: a step may make one."""
    del model
    kinds = subclasses(keras.losses.Loss)
    return [kind for kind in kinds if not kind.__module__.startswith("keras.")]


def _compute_loss(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """On the global batch, unless it adds up means and sums over the samples."""
    batch = active_batch()
    if batch is None or has_whole_batch() or getattr(_thread, "computing_loss", False):
        return original(model, *args, **options)
    _thread.computing_loss = True
    try:
        if not tf.executing_eagerly():  # which leaves no graph to read
            before = [(state, tf.identity(state.value)) for state in _states(model)]
            with batch.losses.holding_warnings() as held:
                loss = original(model, *args, **options)
            rescaled = loss if len(loss.shape) else batch.losses.rescale_number(loss)
            if rescaled is not None:
                for number in held:
                    batch.losses.warn(number)
                return batch.mark(rescaled, "ROWS" if len(loss.shape) else "MEAN")
            for state, value in before:
                state.assign(value)
        return call_with_whole_batch(batch, original, model, args, options)
    finally:
        _thread.computing_loss = False


def _states(model: keras.Model) -> list[keras.Variable]:
    """What computing a loss may change: seeds, metrics, the layers' own states."""
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    seeds = [global_seed_generator().state]
    states = [*model.non_trainable_variables, *metrics, *seeds]
    return list({id(state): state for state in states}.values())


def _own_kinds(model: Any) -> Iterable[type]:
    """The model's class and those it is made from, but Keras's own."""
    return [kind for kind in type(model).__mro__ if kind is not Trainer]


def _add_losses(original: Callable[..., Any], model: keras.Model, loss: Any) -> Any:
    batch = active_batch()
    if batch is None or has_whole_batch():
        return original(model, loss)
    return original(model, batch.losses.rescale_added(loss))


PATCHES = (
    Patch(
        owner=keras_loss,
        name="scale_loss_for_distribution",
        replacement=_scale,
        why="Weights every replica's mean by 1 / replicas, however many samples it is of, and"
        " rounds that to float32.",
        canary="test_losses_are_divided_by_replicas_rounded_to_float32",
    ),
    Patch(
        owner=keras_loss,
        name="unscale_loss_for_distribution",
        replacement=_unscale,
        why="Takes back what `scale_loss_for_distribution` did, for the logs.",
        canary="test_losses_are_divided_by_replicas_rounded_to_float32",
    ),
    Patch(
        owner=keras_loss,
        name="reduce_weighted_values",
        replacement=_reduce,
        why="Divides sums, masked and weighted means by what one replica has of the batch.",
        canary="test_uneven_batches_are_weighted_evenly",
    ),
    Patch(
        owner=keras.losses.Loss,
        name="__call__",
        replacement=_call_loss,
        why="Averages over replicas what is no mean over samples, such as Dice.",
        canary="test_losses_and_metrics_of_a_whole_batch_are_taken_for_means",
    ),
    Patch(
        owner=keras.losses.Loss,
        name="__call__",
        replacement=_call_own_loss,
        why="The same, in a user's own kind of loss.",
        canary="test_losses_and_metrics_of_a_whole_batch_are_taken_for_means",
        classes=_own_losses,
    ),
    Patch(
        owner=Trainer,
        name="compute_loss",
        replacement=_compute_loss,
        why="The same, in a user's own `compute_loss`.",
        canary="test_a_users_compute_loss_is_averaged_over_replicas",
        classes=_own_kinds,
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="_aggregate_additional_loss",
        replacement=_add_losses,
        why="Averages over replicas what layers add, also where it is a sum over the samples.",
        canary="test_added_sums_are_averaged_over_replicas",
    ),
)
