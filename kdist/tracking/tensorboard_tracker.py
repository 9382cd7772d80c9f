"""TensorBoard: Keras's own callback, hyperparameters, best values, steps, and profiles."""

import itertools
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import api as hparams

from .._upstream.callback_attributes import flush_summaries
from ..runs.folder import versions
from .tracker import BestValues, EveryBatches, StepTracker, TelemetryTracker, Tracker, device_of

if TYPE_CHECKING:
    from ..callbacks import TrainingTelemetry


def last_step(folder: Path) -> int:
    """Return the last step in the event files of a folder; -1 without any.

    The newest files, of one second, are read alone, unless they have nothing of a step after 0:
    each process continues where the one before it ended.

    Args:
        folder: May be missing. Files of a process that was killed may end within a record.
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
    """When a file was made, as its name says: `events.out.tfevents.<second>.<host>.<process>…`."""
    second = path.name.split(".")[3]
    return int(second) if second.isdecimal() else 0


def _steps(path: Path) -> Iterator[int]:
    for event in LegacyEventFileLoader(str(path)).Load():
        if event.HasField("summary"):
            yield event.step


class EventFileTracker(Tracker):
    """Base class of trackers with a writer of TensorBoard's, which they make in `begin`."""

    _writer: Any = None

    def flush(self) -> None:
        """Have on the disk what was written so far."""
        self._writer.flush()

    def close(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SeparateRun(EventFileTracker):
    """Base class of trackers that write steps into a run of their own.

    TensorBoard reads only one file of a run at a time.

    Attributes:
        run: The run's name.
        folder: TensorBoard's folder; a subclass sets it.
    """

    run: ClassVar[str]
    folder: Path
    _written = -1

    def begin(self) -> list[Any]:
        """Open the file."""
        folder = self.folder / self.run
        self._written = last_step(folder) if self.continues else -1
        self._writer = tf.summary.create_file_writer(str(folder))
        return []

    def is_new_step(self, step: int) -> bool:
        """Whether no file has this step."""
        return step > self._written


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
        flush_summaries(self._board)

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


class TensorBoardTelemetry(SeparateRun, TelemetryTracker):
    """Writes histograms and norms into TensorBoard's run `telemetry`.

    Args:
        telemetry: As in `TelemetryTracker`.
        folder: TensorBoard's folder.
    """

    run = "telemetry"

    def __init__(self, telemetry: "TrainingTelemetry", folder: Path) -> None:
        super().__init__("TensorBoard", telemetry)
        self.folder = folder

    def write(
        self, step: int, norms: Mapping[str, float], values: Mapping[str, np.ndarray]
    ) -> None:
        """Write a step."""
        with self._writer.as_default(step):
            for name, norm in norms.items():
                tf.summary.scalar(name, norm)
            for name, array in values.items():
                tf.summary.histogram(name, array, buckets=64)


class ProfileSteps(StepTracker):
    """Profiles the executions that contain the steps from `first` to `last`.

    Keras's own callback counts executions instead, each of which may contain many steps.

    Args:
        folder: TensorBoard's folder; the profile is written to its `plugins/profile`.
        first: The first step, counted from 1 over all epochs of the fit.
        last: The last one.
    """

    def __init__(self, folder: Path, *, first: int, last: int) -> None:
        super().__init__("TensorBoard's profile")
        self.folder = folder
        self.first = first
        self.last = last
        self._profiling = self._done = False
        self._trace: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting from 0."""
        self._profiling = self._done = False
        super().on_train_begin(logs)

    def state(self) -> dict[str, Any]:
        """Return the steps so far, and whether those to profile were profiled."""
        return {**super().state(), "done": self._done}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue counting."""
        super().restore(state)
        self._done = state["done"]

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Start with the execution that contains the first step."""
        if not self._open or self._done or self._steps.now >= self.last:
            return
        with self._guarded("profile"):
            last = self._steps.after(batch + self.model.steps_per_execution - 1, self.params)
            if last >= self.first and not self._profiling:
                tf.profiler.experimental.start(str(self.folder))
                self._profiling = True
            if self._profiling:  # TensorBoard finds the steps by this name
                self._trace = tf.profiler.experimental.Trace("train", step_num=last, _r=1)
                self._trace.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Stop with the execution that contains the last step."""
        self._steps.now = self._steps.after(batch, self.params)
        with self._guarded("profile"):
            self._end_trace()
            if self._profiling and self._steps.now >= self.last:
                self._stop()

    def close(self, exit_code: int) -> None:
        """Stop a running profile; warn if nothing was profiled."""
        self._end_trace()
        if self._profiling:
            self._stop()
        elif not self._done and not exit_code:
            warnings.warn(
                f"nothing was profiled: training ended after step {self._steps.now}, before step"
                f" {self.first}",
                stacklevel=2,
            )

    def _end_trace(self) -> None:
        if self._trace is not None:
            trace, self._trace = self._trace, None
            trace.__exit__(None, None, None)

    def _stop(self) -> None:
        self._profiling, self._done = False, True
        tf.profiler.experimental.stop()
