"""`StepTracker`: a tracker that counts the steps of a fit."""

from collections.abc import Mapping
from typing import Any

from .step_count import StepCount
from .tracker import Tracker


class StepTracker(Tracker):
    """Base class of trackers that count steps, over all epochs of the fit.

    A subclass sets `self._steps.now` at the end of each execution.

    Args:
        title: The tracker's name in warnings.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self._steps = StepCount()

    def state(self) -> dict[str, Any]:
        """Return the steps so far."""
        return {"steps": self._steps.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue counting."""
        self._steps.restore(state["steps"])

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting from 0."""
        self._steps = StepCount()
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Continue counting in a new epoch."""
        self._steps.begin_epoch()
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """End the epoch's count."""
        self._steps.end_epoch()
        super().on_epoch_end(epoch, logs)
