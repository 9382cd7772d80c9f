"""`StopAtNonFinite`: stop when the loss is NaN or infinite."""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from .resumable import ResumableCallback


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonFinite:
    """A loss that was not finite, with its epoch and step.

    Attributes:
        epoch: The epoch, from 1.
        step: The step in the epoch, from 1. With several steps per execution, the last step of the
            execution.
        name: Name of the loss.
        value: NaN or an infinity.
    """

    epoch: int
    step: int
    name: str = "loss"
    value: float = math.nan

    def __str__(self) -> str:
        return f"{self.name} was {self.value:g} in epoch {self.epoch}, step {self.step}"


class StopAtNonFinite(ResumableCallback):
    """Stops training at the batch with a NaN or infinite loss.

    Weights that are not finite never recover. When the callback stops training, it prints `Training
    stopped, as loss was nan in epoch 3, step 41: lower the learning rate`. Keras then ends the
    epoch. The `val_…` values of this epoch become NaN, so that no later callback takes them for
    real results.

    The callback never waits for a device: it reads the values that Keras reads for its callbacks
    after every execution. With several steps per execution, these are the values of the last step.

    Put this callback before all callbacks that should also see the NaN.

    The callback reads `loss`. If a model's own `train_step` does not return `loss`, the callback
    reads all values with names that end in `loss`.

    Args:
        verbose: 0 prints nothing.

    Attributes:
        found: The `epoch` and `step` (both from 1), `name` and `value` of the loss that was not
            finite; `None` if the loss was always finite.

    Examples:
        ```python
        stop = StopAtNonFinite()
        model.fit(train, epochs=40, callbacks=[stop])
        if stop.found:
            print(f"diverged in epoch {stop.found.epoch}")
        ```
    """

    stops_in_epoch: ClassVar[bool] = True
    """Several workers stop after the same batch: they exchange `stop_training` after each batch."""

    def __init__(self, *, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        self.found: NonFinite | None = None
        self._epoch = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.found = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        values = logs or {}
        names = ["loss"] if "loss" in values else [name for name in values if name.endswith("loss")]
        for name in names:
            numbers = np.ravel(values[name])
            non_finite = numbers[~np.isfinite(numbers)]
            if len(non_finite) and self.found is None:
                step, value = self.steps_of_epoch_after(batch), float(non_finite[0])
                self.found = NonFinite(epoch=self._epoch + 1, step=step, name=name, value=value)
                self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print where the loss was not finite, and replace the validation values by NaN."""
        super().on_epoch_end(epoch, logs)
        if self.found is not None:
            self.print_line(f"Training stopped, as {self.found}: lower the learning rate")
            values = {} if logs is None else logs
            values.update({name: math.nan for name in values if name.startswith("val_")})
