"""The learning rates that a training plans, found without training."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from .. import _upstream

# Their other callbacks write files, or look at what a training has done.
_LIBRARIES = ("keras", "kdist", "tensorflow", "wandb")
_MOST_STEPS = 20_000
_LOOKS = 1000
_LOGS = {"loss": 1.0, "accuracy": 0.0, "val_loss": 1.0, "val_accuracy": 0.0}


def rate_of(optimizer: Any) -> float | None:
    """Return the learning rate of an optimizer, of a schedule that of its current step.

    Returns:
        The largest of several; `None` if it cannot be read, which is no reason to end a training.
    """
    try:
        return _upstream.largest_rate(optimizer)
    except Exception:  # whatever a schedule or an optimizer of the user's raises
        return None


def schedule_peak(model: keras.Model, steps: int) -> float | None:
    """Return the largest rate of an optimizer's schedule; `None` if it has none.

    Args:
        model: A compiled model, before its first step.
        steps: Of all epochs.
    """
    _choose_optimizers(model)
    optimizer = model.optimizer
    if not _upstream.has_schedule(optimizer):
        return None
    with _steps_of(model) as go_to:
        rates = []
        for step in _looked_at(steps):
            go_to(step)
            rates.append(rate_of(optimizer))
        go_to(0)
    return max((rate for rate in rates if rate is not None), default=None)


def _choose_optimizers(model: keras.Model) -> None:
    """Have a `MultiOptimizer` ask its function which optimizers there are, as a first step does."""
    kind = getattr(keras.optimizers, "MultiOptimizer", ())  # new in Keras 3.15
    if model.built and isinstance(model.optimizer, kind):
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)


@contextlib.contextmanager
def _steps_of(model: keras.Model) -> Iterator[Callable[[int], None]]:
    """Give a function that makes the optimizer count so many steps more than before."""
    with model.distribute_strategy.scope():
        counters = _upstream.step_counters(model.optimizer)
        before = [int(counter.numpy()) for counter in counters]

        def go_to(step: int) -> None:
            for counter, steps in zip(counters, before, strict=True):
                counter.assign(steps + step)

        yield go_to


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
    optimizer, total = model.optimizer, min(len(epochs) * steps, _MOST_STEPS)
    rates: list[tuple[int, float]] = []
    looked_at = set(_looked_at(total))
    _choose_optimizers(model)
    with _steps_of(model) as go_to:
        _call(setters, "on_train_begin", {})
        for step in range(total):
            epoch, batch = epochs[step // steps], step % steps
            if not batch:
                _call(setters, "on_epoch_begin", epoch, {})
            _call(setters, "on_train_batch_begin", batch, {})
            if step in looked_at or not batch:
                go_to(step)
                rate = rate_of(optimizer)
                rates += [] if rate is None else [(step, rate)]
            _call(setters, "on_train_batch_end", batch, dict(_LOGS))
            if batch == steps - 1:
                _call(setters, "on_epoch_end", epoch, dict(_LOGS))
        go_to(total)
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
