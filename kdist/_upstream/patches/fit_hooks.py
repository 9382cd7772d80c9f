"""Patch `fit`: call the strategy before training and after epochs, and save iterators."""

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


def is_inferring_shapes() -> bool:
    """Whether Keras averages a batch over replicas only to infer its shapes."""
    return getattr(_thread, "is_inferring_shapes", False)


def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> Any:
    """Let the strategy prepare a model before Keras builds its optimizer and functions."""
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, iterator, data_batch)
    global_batch = global_batch_of(iterator, data_batch)
    hooks.prepare(model, global_batch=global_batch)
    if iterator is not None:
        auto_steps_per_execution.choose(hooks, model, iterator, global_batch)
    if iterator is not None and data_batch is None:
        # Keras would take a batch from a temporary iterator, and lose what it has read ahead.
        data_batch = batch_spec_of(iterator, any_batch_size=model.built)
        iterator = None if data_batch is not None else iterator
    if not has_call(model):
        # It cannot be built by calling it: its layers and optimizers are built when its step runs.
        return None
    _thread.is_inferring_shapes = True
    try:
        return original(model, iterator, data_batch)
    finally:
        _thread.is_inferring_shapes = False


def _end_epoch(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Let the strategy check the model after an epoch."""
    hooks = hooks_of(model)
    if hooks is not None:
        hooks.epoch_ended(model)
    return original(model, logs)


def _without_spare_iterator(original: Callable[..., Any], epoch: Any) -> Iterator[Any]:
    """Do not make an iterator at the end of an epoch that no epoch uses.

    On several replicas it takes a tenth of a second, and starts to read ahead. The iterator of the
    epoch is freed in the background, so that Keras does not wait for it.
    """
    is_kdist = isinstance(getattr(epoch, "_distribute_strategy", None), StrategyHooks)
    for step in original(epoch):
        if is_kdist:
            release_in_background(step[-1])
        yield step
        is_over = epoch._num_batches and epoch._steps_seen >= epoch._num_batches
        if is_kdist and is_over and epoch.steps_per_epoch is None:
            epoch._steps_seen = 0  # as Keras leaves it


PATCHES = (
    Patch(
        owner=TensorFlowTrainer,
        name="_maybe_symbolic_build",
        replacement=_prepare,
        why="Does not copy an optimizer that was made outside the scope to every replica, and loses"
        " the batches that a temporary iterator has read ahead.",
        canary="test_a_generator_loses_batches_to_a_throw_away_iterator",
    ),
    Patch(
        owner=Trainer,
        name="_get_metrics_result_or_logs",
        replacement=_end_epoch,
        why="Does not report a layer's state that differs between replicas.",
        canary="test_replicas_write_different_layer_states",
    ),
    Patch(
        owner=EpochIterator,
        name="_enumerate_iterator",
        replacement=_without_spare_iterator,
        why="Makes an iterator at the end of an epoch that no epoch uses, and waits until the one"
        " that it has used is freed.",
        canary="test_an_epoch_ends_with_a_spare_iterator",
    ),
)
