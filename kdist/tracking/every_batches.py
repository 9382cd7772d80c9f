"""`EveryBatches`: track metrics within an epoch, every N steps."""

import abc
from typing import Any

import keras

from .step_tracker import StepTracker


class EveryBatches(StepTracker, abc.ABC):
    """Base class of trackers that write metrics every N steps.

    If an execution has several steps, metrics are written at the end of it, for its last step.

    Args:
        title: The tracker's name in warnings.
        every: Steps between two writes.
    """

    def __init__(self, title: str, every: int) -> None:
        super().__init__(title)
        self.every = every

    def is_new_step(self, step: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a step is still to be written; it is about to be."""
        return True

    @abc.abstractmethod
    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step, counted from 1 over all epochs of the fit."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the metrics, if they are due."""
        before = self._steps.now
        self._steps.now = now = self._steps.after(batch, self.params)
        if not self._open or now // self.every == before // self.every:
            return
        with self._guarded("write a batch"):
            if self.is_new_step(now):
                self.write(now, dict(logs or {}) | {"learning_rate": learning_rate(self.model)})


def learning_rate(model: keras.Model) -> float:
    """Return the learning rate of the next step."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
