"""Patch `fit`: call the strategy before training and after epochs."""

import threading
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer

from .. import auto_steps_per_execution
from ..data_spec import batch_spec_of, global_batch_of
from ..hooks import hooks_of
from ..internals import has_call, overridden_steps
from ..patching import Patch
from ..resumed_logs import take_resumed_logs

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
    if hooks.sees_global_batch:
        # What its step makes is made as without a strategy. TensorFlow then traces it twice, which
        # takes long, so Keras makes what it can before.
        if model.built and has_call(model) and not overridden_steps(model):
            batch = data_batch or batch_spec_of(iterator, any_batch_size=True)
            if batch is not None:
                with model.distribute_strategy.scope():
                    model._symbolic_build(data_batch=batch)
        return None
    if iterator is not None and data_batch is None:
        # Keras would take a batch from a temporary iterator, and lose what it has read ahead.
        data_batch = batch_spec_of(iterator, any_batch_size=model.built)
        iterator = None if data_batch is not None else iterator
    if not has_call(model):
        # It cannot be built by calling it: its layers and optimizers are built when its step runs.
        return None
    _thread.is_inferring_shapes = True
    try:
        result = original(model, iterator, data_batch)
    finally:
        _thread.is_inferring_shapes = False
    hooks.metrics_built(model)
    return result


def _end_epoch(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Let the strategy check the model after an epoch."""
    logs = take_resumed_logs(model, logs)
    hooks = hooks_of(model)
    if hooks is not None:
        hooks.epoch_ended(model)
    return original(model, logs)


PATCHES = (
    Patch(
        owner=TensorFlowTrainer,
        name="_maybe_symbolic_build",
        replacement=_prepare,
        why="Does not copy an optimizer made outside the scope to every replica, and loses"
        " the batches that a temporary iterator has prefetched.",
        canary="test_a_generator_loses_batches_to_a_throw_away_iterator",
    ),
    Patch(
        owner=Trainer,
        name="_get_metrics_result_or_logs",
        replacement=_end_epoch,
        why="Does not report a layer's state that differs between replicas.",
        canary="test_replicas_write_different_layer_states",
    ),
)
