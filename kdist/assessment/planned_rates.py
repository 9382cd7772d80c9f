"""The learning rates that a training plans, found without training."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras

# Their other callbacks write files, or look at what a training has done.
_LIBRARIES = ("keras", "kdist", "tensorflow", "wandb")
_MOST_STEPS = 20_000
_LOOKS = 1000
_LOGS = {"loss": 1.0, "accuracy": 0.0, "val_loss": 1.0, "val_accuracy": 0.0}


def rate_of(optimizer: Any) -> float:
    """Return the learning rate of an optimizer, of a schedule that of its current step."""
    rate = optimizer.learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def schedule_peak(model: keras.Model, steps: int) -> float | None:
    """Return the largest rate of an optimizer's schedule; `None` if it has none.

    Args:
        model: A compiled model, before its first step.
        steps: Of all epochs.
    """
    optimizer = model.optimizer
    if not isinstance(_rate_setting(optimizer), dict):
        return None
    with model.distribute_strategy.scope():
        before = int(optimizer.iterations.numpy())
        rates = []
        for step in _looked_at(steps):
            optimizer.iterations.assign(before + step)
            rates.append(rate_of(optimizer))
        optimizer.iterations.assign(before)
    return max(rates, default=None)


def _rate_setting(optimizer: Any) -> Any:
    """The rate as the optimizer is saved with it: a number, or a description of a schedule."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
    return inner.get_config().get("learning_rate")


def _looked_at(steps: int) -> Iterator[int]:
    """Steps, closer together at the beginning, where a rate changes soon."""
    yield from range(min(steps, _LOOKS))
    yield from range(_LOOKS, steps, max(1, steps // _LOOKS))


def rehearse(
    model: keras.Model, callbacks: Sequence[Any], *, epochs: range, steps: int
) -> list[tuple[int, float]]:
    """Return the rates that a training would have, without its steps.

    The callbacks that set rates are called as `fit` calls them: `LearningRateScheduler`, and those
    of the program itself. One that fails, as nothing is trained, is called no more.

    Args:
        model: A compiled model.
        callbacks: All callbacks of its fit.
        epochs: The numbers of its epochs.
        steps: Steps per epoch.

    Returns:
        Steps, counted from 0, and the rate before each.
    """
    setters = [one for one in callbacks if _may_set_rates(one)]
    for one in setters:
        one.set_params({"epochs": epochs.stop, "steps": steps, "verbose": 0})
        one.set_model(model)
    optimizer, rates, total = model.optimizer, [], min(len(epochs) * steps, _MOST_STEPS)
    looked_at = set(_looked_at(total))
    with model.distribute_strategy.scope():
        before = int(optimizer.iterations.numpy())
        _call(setters, "on_train_begin", {})
        for step in range(total):
            epoch, batch = epochs[step // steps], step % steps
            if not batch:
                _call(setters, "on_epoch_begin", epoch, {})
            _call(setters, "on_train_batch_begin", batch, {})
            if step in looked_at or not batch:
                optimizer.iterations.assign(before + step)
                rates.append((step, rate_of(optimizer)))
            _call(setters, "on_train_batch_end", batch, dict(_LOGS))
            if batch == steps - 1:
                _call(setters, "on_epoch_end", epoch, dict(_LOGS))
        optimizer.iterations.assign(before + total)
    return rates


def _may_set_rates(callback: Any) -> bool:
    if isinstance(callback, keras.callbacks.LearningRateScheduler):
        return True
    library = type(callback).__module__.split(".")[0]
    return isinstance(callback, keras.callbacks.Callback) and library not in _LIBRARIES


def _call(callbacks: list[Any], method: str, *arguments: Any) -> None:
    for one in [*callbacks]:
        try:
            getattr(one, method)(*arguments)
        except Exception:  # whatever it needs that a training has
            callbacks.remove(one)
