"""TensorBoard: Keras's own callback, hyperparameters, best values, and steps."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import api as hparams

from .._upstream.callback_attributes import flush_summaries
from ..versions import versions
from .tracker import BestValues, Tracker, device_of

if TYPE_CHECKING:
    from ..callbacks import TrainingTelemetry


def last_step(folder: Path) -> int:
    """Return the last step in the event files of a folder; -1 without any.

    Each process continues where the previous process ended. So only the files of the latest second
    are read, unless their last step is at most 0; then the files before them are read, too.

    Args:
        folder: A folder, which may be missing. Files of a process that was killed may end within a
            record.
    """
    last = -1
    paths = sorted(folder.glob("events.out.tfevents.*"), key=_second, reverse=True)
    for _, of_one_second in itertools.groupby(paths, key=_second):
        for path in of_one_second:
            last = max([last, *_steps(path)])
        if last > 0:
            break
    return last


def _second(path: Path) -> int:
    """Return the creation time in a file's name `events.out.tfevents.<second>.<host>.<process>…`.

    0 if the name has no time.
    """
    second = path.name.split(".")[3]
    return int(second) if second.isdecimal() else 0


def _steps(path: Path) -> Iterator[int]:
    for event in LegacyEventFileLoader(str(path)).Load():
        if event.HasField("summary"):
            yield event.step


# For each axis within epochs: the run, and the prefix of the names of values.
_AXES = {"batch": ("batches", "batch_"), "telemetry": ("telemetry", "")}


class TensorBoardTracker(Tracker):
    """Writes `epoch_<name>` every epoch, counted from 1, the model's graph and hyperparameters.

    Training and validation are the runs `train` and `validation`, as with Keras's callback. The
    folder itself is a run with the best accuracies and losses so far (`best_val_accuracy`, …) and
    `best_epoch`, the device and the versions as text, and the hyperparameters. The HParams
    dashboard shows the hyperparameters; opened on the folder of a search, it compares the trials.
    Values within epochs are in runs of their own, as TensorBoard reads only one file of a run at a
    time: `batches`, with names `batch_<name>`, and `telemetry`.

    Args:
        folder: The folder for the event files.
        hyperparameters: Names and values; numbers, strings and booleans are written.
        trial: Name of the set of hyperparameters.
        telemetry: As in `Tracker`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hyperparameters: Mapping[str, Any],
        trial: str | None = None,
        telemetry: "TrainingTelemetry | None" = None,
    ) -> None:
        super().__init__("TensorBoard", telemetry=telemetry)
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
        self._writer: Any = None
        self._axes: dict[str, tuple[Any, int]] = {}  # writer, and the last step before this process

    def begin(self) -> list[Any]:
        """Make Keras's callback, and TensorBoard's callback for the hyperparameters."""
        self._best_values, self._axes = BestValues(), {}
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

    def is_new(self, axis: str, step: int) -> bool:
        """Whether no earlier process of the run has written this epoch or step to a file."""
        if axis == "epoch":
            return step > self._written
        if axis not in self._axes:
            folder = self.folder / _AXES[axis][0]
            written = last_step(folder) if self.continues else -1
            self._axes[axis] = (tf.summary.create_file_writer(str(folder)), written)
        return step > self._axes[axis][1]

    def scalars(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step."""
        writer, prefix = self._axes[axis][0], _AXES[axis][1]
        with writer.as_default(step):
            for name, value in values.items():
                if isinstance(value, np.ndarray):
                    tf.summary.histogram(f"{prefix}{name}", value, buckets=64)
                else:
                    tf.summary.scalar(f"{prefix}{name}", value)

    def at_epoch_end(self, epoch: int, logs: dict[str, Any], *, is_new: bool) -> None:
        """Write the best values so far."""
        best = self._best_values.update(epoch, logs)
        with self._writer.as_default(epoch):
            for name, value in best.items() if is_new else ():
                tf.summary.scalar(name, value)
        # If the process is killed, the files have the whole epoch or nothing of it.
        self.flush()

    def flush(self) -> None:
        """Write all values to the disk."""
        for writer, _ in self._axes.values():
            writer.flush()
        self._writer.flush()
        flush_summaries(self._board)

    def close(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Close the files."""
        for writer in (self._writer, *(writer for writer, _ in self._axes.values())):
            if writer is not None:
                writer.close()
        self._writer, self._axes = None, {}

    def state(self) -> dict[str, Any]:
        """Return the best values so far."""
        return {"best": self._best_values.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the best values in `state`."""
        self._best_values.restore(state["best"])


class _ResumedSession(hparams.KerasCallback):  # type: ignore[misc, unused-ignore]
    """Writes the end of a session; an earlier process has written the hyperparameters."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Write nothing."""
