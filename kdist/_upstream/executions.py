"""`compile(steps_per_execution="auto")`, which Keras 3 does not have."""

import weakref
from collections.abc import Callable
from typing import Any

import keras
from keras.src.trainers.trainer import Trainer

from .replacing import replace

_automatic: weakref.WeakSet[keras.Model] = weakref.WeakSet()


@replace(Trainer, "compile")
def _compile(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """One step an execution, until the batches are known."""
    _automatic.discard(model)
    automatic = options.get("steps_per_execution") == "auto"
    if automatic and hasattr(model.distribute_strategy, "steps_per_execution"):
        _automatic.add(model)
        options["steps_per_execution"] = 1
    return original(model, *args, **options)


def choose(model: keras.Model, iterator: Any, global_batch: int | None) -> None:
    """Have the strategy choose, for a model and the data that it is about to be trained on."""
    validating = iterator is getattr(model, "_eval_epoch_iterator", None)
    if model not in _automatic or validating:  # validation must not forget the step under way
        return
    steps = model.distribute_strategy.steps_per_execution(model, global_batch)
    steps = min(steps, iterator.num_batches or steps)
    iterator.steps_per_execution = steps
    if steps != model.steps_per_execution:
        model.steps_per_execution = steps
        model.train_function = model.test_function = model.predict_function = None
