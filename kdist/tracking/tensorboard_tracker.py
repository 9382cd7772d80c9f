"""TensorBoard: scalars and graph with Keras's own callback, hyperparameters, best values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from ..runs.versions import versions
from .best_values import BestValues
from .device import device_of
from .every_batches import EveryBatches
from .tracker import Tracker

_TITLE = "TensorBoard"


class TensorBoardTracker(Tracker):
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
        self._writer: Any = None
        self._best_values = BestValues()

    def begin(self) -> list[Any]:
        """Make Keras's callback, and TensorBoard's callback for the hyperparameters."""
        self._best_values = BestValues()
        self._writer = tf.summary.create_file_writer(str(self.folder))
        about = {"device": device_of(self.model.distribute_strategy), **versions()}
        with self._writer.as_default(0):
            for name, value in about.items():
                tf.summary.text(name, value)
        callbacks = [keras.callbacks.TensorBoard(str(self.folder))]
        if self.hyperparameters:
            callbacks.append(hparams.KerasCallback(self._writer, self.hyperparameters, self.trial))
        return callbacks

    def at_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Write the best values so far."""
        with self._writer.as_default(epoch):
            for name, value in self._best_values.update(epoch, logs).items():
                tf.summary.scalar(name, value)

    def close(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class TensorBoardBatches(EveryBatches):
    """Writes metrics within epochs, as `batch_<name>` in the run `batches`.

    Args:
        folder: TensorBoard's folder.
        every: Steps between two writes.
    """

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__(_TITLE, every)
        self.folder = folder
        self._writer: Any = None

    def begin(self) -> list[Any]:
        """Open a separate run: TensorBoard reads only one file of a run at a time."""
        self._writer = tf.summary.create_file_writer(str(self.folder / "batches"))
        return []

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step."""
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(f"batch_{name}", value)

    def close(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
