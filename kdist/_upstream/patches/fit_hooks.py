"""Patch `fit`: call the strategy before training and after epochs."""

from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer

from .. import auto_steps_per_execution
from ..build_for_fit import build_alone
from ..data_spec import batch_spec_of, global_batch_of
from ..hooks import hooks_of
from ..internals import has_call, overridden_steps
from ..patching import Patch
from ..resumed_logs import take_resumed_logs


def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> Any:
    """Let the strategy prepare a model before Keras builds its optimizer and functions."""
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, iterator, data_batch)
    global_batch = global_batch_of(iterator, data_batch)
    hooks.prepare(model)
    if iterator is not None:
        auto_steps_per_execution.choose(hooks, model, iterator, global_batch)
    # What a step makes is made as without a strategy. TensorFlow then traces it twice, which takes
    # long, so Keras makes what it can before.
    if model.built and has_call(model) and not overridden_steps(model):
        build_alone(model, data_batch or batch_spec_of(iterator, any_batch_size=True))
    return None


def _end_epoch(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Return the logs of an epoch that was resumed at its end."""
    return original(model, take_resumed_logs(model, logs))


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
        why="Cannot be told the logs of an epoch that is resumed at its end.",
        canary="test_the_logs_of_an_epoch_are_those_of_its_metrics",
    ),
)
