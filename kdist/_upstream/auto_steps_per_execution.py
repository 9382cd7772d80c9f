"""Support `compile(steps_per_execution="auto")`, which Keras 3 does not have."""

from typing import Any

import keras

from .hooks import StrategyHooks


def choose(
    hooks: StrategyHooks, model: keras.Model, iterator: Any, global_batch: int | None
) -> None:
    """Let the strategy choose the steps per execution, once the data are known."""
    auto = hooks.auto_steps(model)
    if auto.chosen is None or auto.is_evaluating:
        return
    if global_batch not in auto.chosen:
        auto.chosen[global_batch] = hooks.steps_per_execution(model, global_batch)
    chosen = auto.chosen[global_batch]
    steps = min(chosen, iterator.num_batches or chosen)
    if iterator.steps_per_epoch:  # Keras would otherwise train to the end of the last execution
        steps = next(n for n in range(steps, 0, -1) if iterator.steps_per_epoch % n == 0)
    iterator.steps_per_execution = steps
    if steps != model.steps_per_execution:
        model.steps_per_execution = steps
        model.train_function = None
