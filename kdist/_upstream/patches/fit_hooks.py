"""What a strategy is asked before a step and after an epoch, and how Keras reads the data."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer

from .. import auto_steps_per_execution
from ..data_spec import batch_spec_of, global_batch_of
from ..hooks import StrategyHooks, hooks_of
from ..internals import has_call
from ..iterators import release_in_background
from ..patching import Patch

_thread = threading.local()


def is_peeking() -> bool:
    """Whether Keras takes the mean of a batch over replicas, only to learn its shape."""
    return getattr(_thread, "is_peeking", False)


def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> Any:
    """Lets the strategy look at a model before Keras builds its optimizer and its functions."""
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, iterator, data_batch)
    global_batch = global_batch_of(iterator, data_batch)
    hooks.prepare(model, global_batch=global_batch)
    if iterator is not None:
        auto_steps_per_execution.choose(hooks, model, iterator, global_batch)
    if iterator is not None and data_batch is None:
        # Keras takes a batch from a throw-away iterator, whose read-ahead a generator loses.
        data_batch = batch_spec_of(iterator, of_any_size=model.built)
        iterator = None if data_batch is not None else iterator
    if not has_call(model):
        # Nothing to build by calling it; its layers and optimizers are built where its step is.
        return None
    _thread.is_peeking = True
    try:
        return original(model, iterator, data_batch)
    finally:
        _thread.is_peeking = False


def _end_epoch(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Lets the strategy look at the model after an epoch."""
    hooks = hooks_of(model)
    if hooks is not None:
        hooks.epoch_ended(model)
    return original(model, logs)


def _without_a_spare(original: Callable[..., Any], epoch: Any) -> Iterator[Any]:
    """Keeps Keras from making an iterator at the end of an epoch that no epoch uses.

    On several replicas that is a tenth of a second, and starts to read ahead. Nor does Keras wait
    for the end of the one it has used.
    """
    ours = isinstance(getattr(epoch, "_distribute_strategy", None), StrategyHooks)
    for step in original(epoch):
        if ours:
            release_in_background(step[-1])
        yield step
        is_over = epoch._num_batches and epoch._steps_seen >= epoch._num_batches
        if ours and is_over and epoch.steps_per_epoch is None:
            epoch._steps_seen = 0  # as Keras leaves it


PATCHES = (
    Patch(
        owner=TensorFlowTrainer,
        name="_maybe_symbolic_build",
        replacement=_prepare,
        why="Leaves an optimizer that was made outside the scope without a copy on every replica,"
        " and loses the batches that a throw-away iterator has read ahead.",
        canary="test_a_generator_loses_batches_to_a_throw_away_iterator",
    ),
    Patch(
        owner=Trainer,
        name="_get_metrics_result_or_logs",
        replacement=_end_epoch,
        why="Says nothing of a layer's state that has become another on each replica.",
        canary="test_replicas_write_their_own_into_a_layers_state",
    ),
    Patch(
        owner=EpochIterator,
        name="_enumerate_iterator",
        replacement=_without_a_spare,
        why="Makes an iterator at the end of an epoch that no epoch uses, and waits for the end of"
        " the one it has used.",
        canary="test_an_epoch_ends_with_a_spare_iterator",
    ),
)
