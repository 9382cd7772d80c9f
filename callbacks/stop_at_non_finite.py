"""`StopAtNonFinite`: stop when the loss is NaN or infinite."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from .resumable import ResumableCallback


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonFinite:
    """A loss that was not finite, and its place.

    Attributes:
        epoch: The epoch, from 1.
        step: The step in the epoch, from 1. With several steps per execution, the last step of the
            execution.
        first_step: The first step of the execution.
        name: Name of the loss.
        value: NaN or an infinity.
    """

    epoch: int
    step: int
    first_step: int
    name: str = "loss"
    value: float = math.nan

    def __str__(self) -> str:
        alone = self.first_step == self.step
        steps = f"step {self.step}" if alone else f"steps {self.first_step} to {self.step}"
        return f"{self.name} was {self.value:g} in epoch {self.epoch}, {steps}"


class StopAtNonFinite(ResumableCallback):
    """Stops training at the batch with a NaN or infinite loss.

    Weights that are not finite never recover. When the callback stops training, it prints `Training
    stopped: loss was nan in epoch 3, step 41: lower the learning rate`. Keras then ends the epoch.
    The callback cuts the validation of this epoch to one batch, and its `val_…` values become NaN,
    so that no later callback takes them for real results.

    The callback never waits for a device: it reads the values that Keras reads for its callbacks
    after every execution. With several steps per execution, these are the values of the last step.

    Put this callback before all callbacks that should also see the NaN.

    The callback reads `loss`. If a model's own `train_step` does not return `loss`, the callback
    reads all values with names that end in `loss`; without such a value, it warns.

    Args:
        verbose: 0 prints nothing.

    Attributes:
        found: The `epoch` and `step` (both from 1), `name` and `value` of the loss that was not
            finite; `None` if the loss was always finite.

    Example:
        ```python
        stop = StopAtNonFinite()
        model.fit(train, epochs=40, callbacks=[stop])
        if stop.found:
            print(f"diverged in epoch {stop.found.epoch}")
        ```
    """

    stops_in_epoch: ClassVar[bool] = True
    """Whether several workers exchange the decision to stop after every batch."""

    def __init__(self, *, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        self.found: NonFinite | None = None
        self._epoch = 0
        self._is_training = self._has_told = self._has_warned = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reset the state of the previous fit."""
        super().on_train_begin(logs)
        self.found = None
        self._is_training, self._has_told = True, False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Record the epoch."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop training if the loss is not finite."""
        super().on_train_batch_end(batch, logs)
        values = logs or {}
        for name in self._watched(values):
            value = _first_non_finite(values[name])
            if value is not None:
                self._stop(batch, name, value)
                return

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Shorten the validation of a model with non-finite loss."""
        super().on_test_begin(logs)
        if self._is_training and self.found is not None:
            self.model.stop_evaluating = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the place of the non-finite loss, and replace the validation values by NaN."""
        super().on_epoch_end(epoch, logs)
        if self.found is not None and logs is not None:
            logs.update({name: math.nan for name in logs if name.startswith("val_")})
        self._tell()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the place of the non-finite loss, if no epoch has ended since."""
        self._tell()
        self._is_training = False
        super().on_train_end(logs)

    def _stop(self, batch: int, name: str, value: float) -> None:
        self.found = NonFinite(
            epoch=self._epoch + 1,
            step=self.steps_done(batch),
            first_step=batch + 2 - self.model.steps_per_execution,
            name=name,
            value=value,
        )
        self.model.stop_training = True

    def _tell(self) -> None:
        if self.found is not None and not self._has_told:
            self._has_told = True
            self.print_line(f"Training stopped: {self.found}: lower the learning rate")

    def _watched(self, logs: Mapping[str, Any]) -> list[str]:
        names = ["loss"] if "loss" in logs else [name for name in logs if name.endswith("loss")]
        if not names and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "StopAtNonFinite finds no loss, but the step reported"
                f" {', '.join(sorted(logs)) or 'nothing'}: have the step return a value whose name"
                " ends in loss, or remove the callback",
                stacklevel=2,
            )
        return names


def _first_non_finite(value: Any) -> float | None:
    """Return the first value that is not finite; `None` if all values are finite."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    numbers = np.ravel(value)
    wrong = numbers[~np.isfinite(numbers)]
    return float(wrong[0]) if len(wrong) else None
