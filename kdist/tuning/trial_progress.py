"""`ReportProgress`: tells `SearchProgress` how far the current trial is."""

from typing import Any

from ..callbacks.resumable import ResumableCallback
from .search_progress import SearchProgress


class ReportProgress(ResumableCallback):
    """Reports steps and epochs of one execution of a trial.

    Args:
        progress: Shows them.
        objective: Name of the objective, which is shown at the end of an epoch.
        execution: Number of the execution, from 0.
        executions: Executions of the trial.
    """

    def __init__(
        self, progress: SearchProgress, *, objective: str, execution: int, executions: int
    ) -> None:
        super().__init__()
        self.progress = progress
        self.objective = objective
        self.execution = execution
        self.executions = executions
        self._first: int | None = None
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the epoch; a trial that continues another begins later than at the first."""
        super().on_epoch_begin(epoch, logs)
        self._first = epoch if self._first is None else self._first
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Move the bar."""
        steps = self.params.get("steps")
        if steps:
            part = min((batch + 1) / steps, 1.0)
            self.progress.update(self._done(self._epoch + part), self._what)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Report the epoch with its value of the objective."""
        values = logs or {}
        names = (self.objective, "val_accuracy", "val_loss", "loss")
        name = next((name for name in names if name in values), None)
        value = "" if name is None else f": {name} {float(values[name]):.4g}"
        self.progress.end_epoch(self._done(epoch + 1), f"{self._what}{value}")

    def _done(self, epochs: float) -> float:
        first = self._first or 0
        part = (epochs - first) / max(1, self.params["epochs"] - first)
        return float((self.execution + part) / self.executions)

    @property
    def _what(self) -> str:
        epoch = f"epoch {self._epoch + 1}/{self.params['epochs']}"
        if self.executions == 1:
            return epoch
        return f"execution {self.execution + 1}/{self.executions}, {epoch}"
