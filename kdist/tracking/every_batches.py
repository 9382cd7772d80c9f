"""`EveryBatches`: track metrics within an epoch, every N steps."""

import abc
from collections.abc import Mapping
from typing import Any

import keras

from .step_count import StepCount
from .tracker import Tracker


class EveryBatches(Tracker, abc.ABC):
    """Base class of trackers that write metrics every N steps.

    If an execution has several steps, metrics are written at the end of it, for its last step.

    Args:
        title: The tracker's name in warnings.
        every: Steps between two writes.
    """

    def __init__(self, title: str, every: int) -> None:
        super().__init__(title)
        self.every = every
        self._steps = StepCount()

    def is_new_step(self, step: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a step is still to be written; it is about to be."""
        return True

    def state(self) -> dict[str, Any]:
        """Return the steps so far."""
        return {"steps": self._steps.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue counting."""
        self._steps.restore(state["steps"])

    @abc.abstractmethod
    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step, counted from 1 over all epochs of the fit."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting from 0."""
        self._steps = StepCount()
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Continue counting in a new epoch."""
        self._steps.begin_epoch()
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the metrics, if they are due."""
        before = self._steps.now
        self._steps.now = now = self._steps.after(batch, self.params)
        if not self._open or now // self.every == before // self.every:
            return
        with self._guarded("write a batch"):
            if self.is_new_step(now):
                self.write(now, dict(logs or {}) | {"learning_rate": learning_rate(self.model)})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """End the epoch's count."""
        self._steps.end_epoch()
        super().on_epoch_end(epoch, logs)


def learning_rate(model: keras.Model) -> float:
    """Return the learning rate of the next step."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
