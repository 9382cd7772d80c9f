"""What a trial saves while it is trained: its checkpoints, and the weights of its best epoch."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from .._upstream.keras_tuner import BestSaver, save_best_in
from ..callbacks import Checkpoint
from ..checkpoint.store import checkpoint_files
from ..errors import UserError
from ..files import atomic_link, atomic_path, full_disk_error
from ..signals import Received


def checkpoint_folder(trial: Path, execution: int) -> Path:
    """Return the folder of an execution's checkpoints, in that of its trial; the first is 0."""
    return trial / "checkpoints" / f"execution-{execution}"


def best_file(folder: Path) -> Path:
    """Return the file with the best weights of an execution, in the folder of its checkpoints."""
    return folder / "best.weights.h5"


_EVERY_SECONDS = 300.0
_KEEP = 2  # of which one may be damaged


class TrialCheckpoint(Checkpoint):
    """Saves one execution of a trial as it proceeds, and continues one that was interrupted.

    The trial that Hyperband promotes another one to begins where that one ended, with its history
    and its best weights: it ends as if it had been trained for all epochs.

    After a signal it saves at the end of the step, and raises `Interrupted`.

    Args:
        folder: That of `checkpoint_folder`.
        held: What `hold_signals` yielded.
        promoted: The `checkpoint_folder` of the trial that was promoted to this one; `None` for
            a trial that begins with its first epoch.
    """

    def __init__(self, folder: Path, *, held: Received, promoted: Path | None = None) -> None:
        super().__init__(
            folder, every_seconds=_EVERY_SECONDS, keep=_KEEP, preemption=False, verbose=0
        )
        self.options = dataclasses.replace(
            self.options,
            held=held,
            start_from=promoted,
            any_rate=promoted is not None,  # a schedule may depend on the trial's epochs
            warns=False,  # nobody asked for checkpoints, and most trials are never resumed
        )

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Restore the execution, or the one that was promoted; without either it begins anew.

        Checkpoints may be damaged, or the user's model may have changed meanwhile.
        """
        problem = None
        while True:
            try:
                self._take_best_weights()
                super().fit_begins(callbacks)
                break
            except UserError as error:
                if full_disk_error(error) is not None:
                    raise
                if checkpoint_files(self.options.path):
                    shutil.rmtree(self.options.path)
                elif self.options.start_from is not None:
                    self.options = dataclasses.replace(self.options, start_from=None)
                else:
                    raise
                problem = str(error).rpartition(": ")[0]  # without what a user is to do
        if problem and self._fit is not None and self._fit.resumed_from is None:
            self._announce(f"Trained from the first epoch: {problem}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Keep a checkpoint for the next promotion where nothing was left to train."""
        super().on_train_end(logs)
        promoted = self.options.start_from
        if promoted is not None and not checkpoint_files(self.options.path):
            for one in checkpoint_files(promoted):
                atomic_link(self.options.path / one.path.name, one.path)

    def _take_best_weights(self) -> None:
        """Copy those of the trial that was promoted: this one may not find better ones."""
        if checkpoint_files(self.options.path):
            return  # with this one's
        own, promoted = best_file(self.options.path), self.options.start_from
        own.unlink(missing_ok=True)
        if promoted is None:
            return
        if not checkpoint_files(promoted) or not best_file(promoted).exists():
            raise UserError(f"{promoted} has no checkpoint: train from the first epoch")
        own.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(own) as part:  # no link: Keras writes into the file that is there
            shutil.copyfile(best_file(promoted), part)


class BestWeights:
    """Keeps the weights of the best epoch over the executions of a trial.

    KerasTuner has all executions write one file, so that one which continues an execution of
    another trial could not find the best weights of that one.

    Args:
        file: What KerasTuner loads.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._best: BestSaver | None = None
        self._current: BestSaver | None = None

    def begin_execution(self, folder: Path, callbacks: Sequence[Any]) -> list[Any]:
        """Return the callbacks, of which KerasTuner's then saves in the execution's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        found, self._current = save_best_in(best_file(folder), callbacks)
        return found

    def end_execution(self) -> None:
        """Keep the weights, unless an execution before has better ones."""
        current, self._current = self._current, None
        if current is None or not Path(current.filepath).exists():
            return  # a hypermodel's own `fit` need not save
        best = self._best
        if best is None or current.objective.better_than(current.best_value, best.best_value):
            self._best = current
            atomic_link(self._file, Path(current.filepath))
