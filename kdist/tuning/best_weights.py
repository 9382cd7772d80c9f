"""`BestWeights`: the weights of a trial's best epoch, each execution's beside its checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._upstream.keras_tuner import BestSaver, save_best_in
from ..files import atomic_link


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


def best_file(folder: Path) -> Path:
    """Return the file with the best weights of an execution.

    Args:
        folder: That of its checkpoints.
    """
    return folder / "best.weights.h5"
