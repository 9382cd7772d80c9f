"""`compile(steps_per_execution="auto")`, which Keras 3 does not have."""

import weakref
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer

from . import automatic_xla
from .replacing import replace

# What was chosen, by the global batch, for the models that were compiled so.
_automatic: weakref.WeakKeyDictionary[keras.Model, dict[int | None, int]] = (
    weakref.WeakKeyDictionary()
)
_evaluating: weakref.WeakSet[keras.Model] = weakref.WeakSet()


@replace(Trainer, "compile")
def _compile(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """One step an execution, until the batches are known; nothing of a compilation before holds."""
    _automatic.pop(model, None)
    automatic_xla.forget(model)
    forget = getattr(model.distribute_strategy, "forget", None)
    if forget is not None:
        forget(model)
    automatic = options.get("steps_per_execution") == "auto"
    if automatic and hasattr(model.distribute_strategy, "steps_per_execution"):
        _automatic[model] = {}
        options["steps_per_execution"] = 1
    return original(model, *args, **options)


def choose(model: keras.Model, iterator: Any, global_batch: int | None) -> None:
    """Have the strategy choose, for a model and the data that it is about to be trained on."""
    if model not in _automatic or model in _evaluating:
        return
    chosen = _automatic[model]
    if global_batch not in chosen:
        chosen[global_batch] = model.distribute_strategy.steps_per_execution(model, global_batch)
    steps = min(chosen[global_batch], iterator.num_batches or chosen[global_batch])
    if iterator.steps_per_epoch:  # where Keras goes on to the end of the last execution
        steps = next(n for n in range(steps, 0, -1) if iterator.steps_per_epoch % n == 0)
    iterator.steps_per_execution = steps
    if steps != model.steps_per_execution:
        model.steps_per_execution = steps
        model.train_function = None


def _step_by_step(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Evaluates and predicts one step an execution, and forgets nothing of a fit under way.

    Keras would evaluate more than the steps that were asked for, and put as many copies of the
    model into the graph of a prediction.
    """
    if model not in _automatic or model in _evaluating:
        return original(model, *args, **options)
    steps = model.steps_per_execution
    model.steps_per_execution = 1
    validation = getattr(model, "_eval_epoch_iterator", None)
    if validation is not None:
        validation.steps_per_execution = 1
    _evaluating.add(model)
    try:
        return original(model, *args, **options)
    finally:
        _evaluating.discard(model)
        model.steps_per_execution = steps


for _name in ("evaluate", "predict"):
    replace(TensorFlowTrainer, _name)(_step_by_step)
