"""TensorBoard: scalars and graph with Keras's own callback, hyperparameters, best values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from .. import _upstream
from ..runs.versions import versions
from .best_values import BestValues
from .device import device_of
from .event_file_trackers import EventFileTracker, SeparateRun
from .event_files import last_step
from .every_batches import EveryBatches

_TITLE = "TensorBoard"


class TensorBoardTracker(EventFileTracker):
    """Writes `epoch_<name>` every epoch, counted from 1, the model's graph and hyperparameters.

    Training and validation are the runs `train` and `validation`, as with Keras's callback. The
    folder itself is a run with the best accuracies and losses so far (`best_val_accuracy`, …) and
    `best_epoch`, the device and the versions as text, and the hyperparameters. These are for the
    HParams dashboard, which compares the trials of a search if it is opened on the search's folder.

    Args:
        folder: The folder for the event files.
        hyperparameters: Names and values; numbers, strings and booleans are written.
        trial: Name of this set of hyperparameters.
    """

    def __init__(
        self, folder: Path, *, hyperparameters: Mapping[str, Any], trial: str | None = None
    ) -> None:
        super().__init__(_TITLE)
        self.folder = folder
        self.hyperparameters = {
            name: value
            for name, value in hyperparameters.items()
            if isinstance(value, bool | int | float | str)
        }
        self.trial = trial
        self._board: Any = None
        self._best_values = BestValues()
        self._written = -1

    def begin(self) -> list[Any]:
        """Make Keras's callback, and TensorBoard's callback for the hyperparameters."""
        self._best_values = BestValues()
        parts = (self.folder, self.folder / "train", self.folder / "validation")
        self._written = max(map(last_step, parts)) if self.continues else -1
        has_begun = self._written >= 0
        self._writer = tf.summary.create_file_writer(str(self.folder))
        about = {"device": device_of(self.model.distribute_strategy), **versions()}
        with self._writer.as_default(0):
            for name, value in about.items() if not has_begun else ():
                tf.summary.text(name, value)
        self._board = keras.callbacks.TensorBoard(str(self.folder), write_graph=not has_begun)
        callbacks = [self._board]
        if self.hyperparameters:
            make = _ResumedSession if has_begun else hparams.KerasCallback
            callbacks.append(make(self._writer, self.hyperparameters, self.trial))
        return callbacks

    def is_new_epoch(self, epoch: int) -> bool:
        """Whether no file has this epoch."""
        return epoch > self._written

    def at_epoch_end(self, epoch: int, logs: dict[str, Any], *, is_new: bool) -> None:
        """Write the best values so far."""
        best = self._best_values.update(epoch, logs)
        with self._writer.as_default(epoch):
            for name, value in best.items() if is_new else ():
                tf.summary.scalar(name, value)
        self.flush()  # an epoch is there as a whole or not at all, if the process is killed

    def flush(self) -> None:
        """Have on the disk what was written so far."""
        super().flush()
        _upstream.flush_summaries(self._board)

    def state(self) -> dict[str, Any]:
        """Return the best values so far."""
        return {"best": self._best_values.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from them."""
        self._best_values.restore(state["best"])


class _ResumedSession(hparams.KerasCallback):  # type: ignore[misc, unused-ignore]
    """Writes the end of a session whose hyperparameters another process has written."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Write nothing."""


class TensorBoardBatches(SeparateRun, EveryBatches):
    """Writes metrics within epochs, as `batch_<name>` in the run `batches`.

    Args:
        folder: TensorBoard's folder.
        every: Steps between two writes.
    """

    run = "batches"

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__(_TITLE, every)
        self.folder = folder

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step."""
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(f"batch_{name}", value)
