"""Stop once the model is good enough."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..arguments import positive_integer, real_number
from ..errors import UserError
from .resumable import ResumableCallback


class StopAtAccuracy(ResumableCallback):
    """Stops training once an accuracy beat its target in several consecutive epochs.

    To beat a target is to be above it; to reach it exactly is not enough. Epochs without
    validation neither count nor interrupt the row. When it stops, it prints
    `Early stopping after epoch 7`, counting epochs from 1 as Keras does.

    Args:
        target: The accuracy to beat in `val_accuracy`, at least 0 and below 1; or a mapping from
            names in `logs` to targets, such as `{"val_accuracy": 0.85, "accuracy": 0.9}`, all of
            which have to be beaten in the same epoch.
        patience: How many validated epochs in a row have to beat the target, at least 1.
        validation_freq: The `validation_freq` of `fit`; of a list, its first entry. Until the
            epoch that it names, a missing `val_…` is no error.
        verbose: 0 stops without a line.

    Attributes:
        targets: The mapping from names in `logs` to targets.
        streak: How many epochs in a row have beaten the target up to now.
        stopped_epoch: The epoch, from 1, after which training was stopped, or None.

    Raises:
        UserError: If an argument is out of range, or, at the end of an epoch, if `logs` lacks a
            name of `target`.

    Example:
        ```python
        stop = StopAtAccuracy(target=0.85, patience=2)
        model.fit(train, validation_data=test, epochs=40, callbacks=[stop])
        ```
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {"streak": 0}
    streak: int

    def __init__(
        self,
        target: float | Mapping[str, float] = 0.85,
        patience: int = 2,
        *,
        validation_freq: int = 1,
        verbose: int = 1,
    ) -> None:
        super().__init__(verbose=verbose)
        self.targets = _targets(target)
        self.patience = positive_integer(
            "patience", patience, mend="pass how many epochs in a row have to beat the target"
        )
        self.validation_freq = positive_integer(
            "validation_freq", validation_freq, mend="pass the validation_freq given to fit()"
        )
        self.stopped_epoch: int | None = None
        self._complete_before = False

    @property
    def reached(self) -> bool:
        """Whether the target was met, so that training was stopped."""
        return self.stopped_epoch is not None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Forget the fit before."""
        super().on_train_begin(logs)
        self.stopped_epoch = None
        self._complete_before = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Compare the epoch with the target, and stop training if it was the last one needed."""
        super().on_epoch_end(epoch, logs)
        logs = logs or {}
        if not self._is_complete(epoch, logs):
            return
        beaten = all(_is_above(logs[name], target) for name, target in self.targets.items())
        self.streak = self.streak + 1 if beaten else 0
        if self.streak >= self.patience:
            self.stopped_epoch = epoch + 1
            self.model.stop_training = True
            self.say(f"Early stopping after epoch {epoch + 1}")

    def _is_complete(self, epoch: int, logs: Mapping[str, Any]) -> bool:
        missing = [name for name in self.targets if name not in logs]
        if not missing:
            self._complete_before = True
            return True
        due = not self._complete_before and (epoch + 1) % self.validation_freq == 0
        validated = any(name.startswith("val_") for name in logs)
        if due or validated or not all(name.startswith("val_") for name in missing):
            raise UserError(
                f"StopAtAccuracy waits for {', '.join(missing)}, but epoch {epoch + 1} reported "
                f"{', '.join(sorted(logs)) or 'nothing'}: "
                'pass metrics=["accuracy"] to compile() and validation_data to fit(), or name the '
                'metric, as in target={"val_top_5": 0.85}; if fit() has a validation_freq, pass it '
                "to StopAtAccuracy too."
            )
        return False


def _targets(target: float | Mapping[str, float]) -> dict[str, float]:
    named = dict(target) if isinstance(target, Mapping) else {"val_accuracy": target}
    if not named:
        raise UserError('target is empty: name a metric, as in target={"val_accuracy": 0.85}.')
    for name, value in named.items():
        mend = "pass an accuracy such as 0.85"
        accuracy = real_number(f"target for {name}", value, mend=mend)
        if not 0 <= accuracy < 1:
            raise UserError(
                f"target for {name} is {value!r}, but an accuracy to beat is at least 0 and below "
                f"1: {mend}."
            )
        named[name] = accuracy
    return named


def _is_above(accuracy: float, target: float) -> bool:
    # Keras computes in float32, where 8,500 right of 10,000 come out as 0.85000002.
    return bool(np.float32(accuracy) > np.float32(target))
