"""Metrics within an epoch, every so many steps."""

from typing import Any

import keras

from .step_count import StepCount
from .tracker import Tracker


class EveryBatches(Tracker):
    """Writes metrics each time so many steps have been trained.

    An execution may hold several steps: they are written when it has ended, at its last step.

    Args:
        title: What it is called in the warning.
        every: Steps between two writings.
    """

    def __init__(self, title: str, every: int) -> None:
        super().__init__(title)
        self.every = every
        self._steps = StepCount()

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step, counted from 1 over all epochs of the fit."""
        raise NotImplementedError

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Count from 0."""
        self._steps = StepCount()
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Go on counting."""
        self._steps.begin_epoch()
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write, if it is time."""
        before = self._steps.now
        self._steps.now = now = self._steps.after(batch, self.params)
        if not self._open or now // self.every == before // self.every:
            return
        with self._guarded("write a batch"):
            self.write(now, dict(logs or {}) | {"learning_rate": learning_rate(self.model)})


def learning_rate(model: keras.Model) -> float:
    """The next step's."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
