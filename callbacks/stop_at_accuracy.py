"""`StopAtAccuracy`: stop when the model is good enough, or the time is up."""

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..arguments import number_within, positive_integer
from ..errors import UserError
from .resumable import Clock, TimedCallback


class StopAtAccuracy(TimedCallback):
    """Stops training when accuracies exceed their targets in several consecutive epochs.

    A value has to be above its target; an equal value is not enough. Epochs without validation
    neither count nor break the streak. When the callback stops training, it prints `Early stopping
    after epoch 7`, counting epochs from 1 as Keras does. At the end it prints the first epoch of
    the streak, `Target val_accuracy > 0.85 met in epoch 6 after 41.70 seconds`. If the target was
    not met, it prints the best value of each metric.

    Args:
        target: The accuracy that `val_accuracy` has to exceed, at least 0 and below 1. Or a mapping
            from names in `logs` to targets, such as `{"val_accuracy": 0.85, "accuracy": 0.9}`: all
            targets have to be exceeded in the same epoch. `None` for a time budget without a
            target.
        patience: Number of consecutive validated epochs that have to exceed the target, at least 1.
        time_budget: Seconds of training, validation included. After this time, training stops at
            the end of the epoch, even if the target is not met. `None` for no limit.
        verbose: 0 prints nothing.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        targets: The mapping from names in `logs` to targets.
        streak: Number of consecutive epochs, up to now, that exceeded the target.
        stopped_epoch: The epoch, counted from 1, after which training was stopped, or `None`.
        met_epoch: The first epoch of the current streak, or `None`.
        met_seconds: Seconds of training until the end of `met_epoch`, or `None`.
        seconds: Seconds of training so far, including the seconds of the run before it was resumed.

    Raises:
        UserError: An argument is out of range. At the end of an epoch: `logs` lacks a name of
            `target`, unless it is a `val_…` name and the epoch had no validation.

    Examples:
        ```python
        stop = StopAtAccuracy(target=0.85, patience=2)
        model.fit(train, validation_data=test, epochs=40, callbacks=[stop])
        ```
    """

    initial_state: ClassVar[Mapping[str, Any]] = {
        "streak": 0,
        "seconds": 0.0,
        "met_epoch": None,
        "met_seconds": None,
        "best": {},
    }
    streak: int
    met_epoch: int | None
    met_seconds: float | None
    best: dict[str, float]

    def __init__(
        self,
        target: float | Mapping[str, float] | None = 0.85,
        patience: int = 2,
        *,
        time_budget: float | None = None,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__(verbose=verbose, clock=clock)
        is_timed_only = target is None and time_budget is not None
        self.targets = {} if is_timed_only else _check_targets(target)
        self.patience = positive_integer(
            "patience", patience, hint="pass how many epochs in a row have to beat the target"
        )
        if time_budget is not None:
            hint = "pass how many seconds training may take"
            time_budget = number_within(
                "time_budget", time_budget, above=0, is_finite=False, hint=hint
            )
        self.time_budget = time_budget
        self.stopped_epoch: int | None = None

    @property
    def reached(self) -> bool:
        """Whether `patience` consecutive epochs exceeded the target."""
        return self.streak >= self.patience

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.stopped_epoch = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        logs = logs or {}
        if self.targets and self._is_complete(epoch, logs):
            self._compare(epoch, logs)
        if self.reached:
            self._stop(epoch)
        elif self.time_budget is not None and self.seconds >= self.time_budget:
            self.print_line(f"Time budget of {self.time_budget:g} seconds used up")
            self._stop(epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        goal = ", ".join(f"{name} > {target:g}" for name, target in self.targets.items())
        if self.reached:
            self.print_line(
                f"Target {goal} met in epoch {self.met_epoch} after {self.met_seconds:.2f} seconds"
            )
        elif self.targets:
            row = f" in {self.patience} epochs in a row" if self.patience > 1 else ""
            values = ", ".join(f"{name} {value:.4f}" for name, value in self.best.items())
            best = f"best of all epochs: {values}" if values else "no epoch was validated"
            self.print_line(f"Target {goal} never met{row}; {best}")
        super().on_train_end(logs)

    def _compare(self, epoch: int, logs: Mapping[str, Any]) -> None:
        values = {name: float(logs[name]) for name in self.targets}
        self.best = {
            name: float(np.fmax(value, self.best.get(name, -math.inf)))
            for name, value in values.items()
        }
        # Keras computes in float32, where 8,500 of 10,000 is 0.85000002.
        if not all(np.float32(values[name]) > np.float32(self.targets[name]) for name in values):
            self.streak, self.met_epoch, self.met_seconds = 0, None, None
            return
        if not self.streak:
            self.met_epoch, self.met_seconds = epoch + 1, self.seconds
        self.streak += 1

    def _stop(self, epoch: int) -> None:
        self.stopped_epoch = epoch + 1
        self.model.stop_training = True
        self.print_line(f"Early stopping after epoch {epoch + 1}")

    def _is_complete(self, epoch: int, logs: Mapping[str, Any]) -> bool:
        missing = [name for name in self.targets if name not in logs]
        if not missing:
            return True
        has_validated = any(name.startswith("val_") for name in logs)
        if not has_validated and all(name.startswith("val_") for name in missing):
            return False
        raise UserError(
            f"StopAtAccuracy needs {', '.join(missing)}, but epoch {epoch + 1} reported"
            f" {', '.join(sorted(logs)) or 'nothing'}: add it to compile(), as in"
            ' metrics=["accuracy"], or name a reported metric'
        )


def _check_targets(target: float | Mapping[str, float] | None) -> dict[str, float]:
    named: dict[str, Any] = {"val_accuracy": target}
    if isinstance(target, Mapping):
        named = dict(target)
    if not named:
        raise UserError('target is empty: pass a metric, as in target={"val_accuracy": 0.85}')
    for name, value in named.items():
        named[name] = number_within(
            f"target for {name}", value, below=1, hint="pass an accuracy such as 0.85"
        )
    return named
