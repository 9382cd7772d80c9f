"""The saved models of a run, and the lines of the table."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...arguments import path_text
from ...checkpoint.store import CheckpointFile, checkpoint_files, is_abandoned
from ...errors import UserError, error_text
from ...training.folder import saved_model
from ...training.record import RunRecord, read_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A checkpoint of a run, or its final model.

    Attributes:
        path: The file.
        checkpoint: The checkpoint; `None` for the final model.
        epoch: Epoch of the model, counted from 1; `None` if unknown.
        step: Number of trained steps of this epoch; `None` at the end of the epoch.
    """

    path: Path
    checkpoint: CheckpointFile | None = None
    epoch: int | None = None
    step: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Loss and metrics of a saved model on the validation data.

    Attributes:
        epoch: Epoch of the model, counted from 1; `None` if unknown.
        step: Number of trained steps of this epoch; `None` at the end of the epoch.
        samples: Number of samples; each sample counts once. `None` if unknown.
        metrics: Loss and metrics by name: `"loss"` with weight penalties, as in training; for
            kdist's networks also `"accuracy"`, from 0 to 1.
        weights: `"averaged"` or `"trained"`.
        file: Name of the file.
    """

    epoch: int | None
    step: int | None
    samples: int | None
    metrics: Mapping[str, float]
    weights: str
    file: str

    def __str__(self) -> str:
        return _line(self._cells().items())

    def heading(self) -> str:
        """Return the heading of a table of evaluations."""
        return _line((name, name) for name in self._cells())

    def _cells(self) -> dict[str, str]:
        return {
            "epoch": "-" if self.epoch is None else f"{self.epoch}",
            "step": "end" if self.step is None else f"{self.step}",
            "samples": "-" if self.samples is None else f"{self.samples}",
            **{name: f"{value:.4f}" for name, value in self.metrics.items()},
            "weights": self.weights,
            "file": self.file,
        }


_LEAST_WIDTH = 8


def _line(cells: Iterable[tuple[str, str]]) -> str:
    *columns, (_, file) = cells
    padded = [text.rjust(max(len(name), _LEAST_WIDTH)) for name, text in columns]
    return "  ".join([*padded, file])


class RunModels:
    """The models of a run of `kdist train`.

    Args:
        path: The run folder.

    Attributes:
        folder: The run folder.
        settings: Settings of the run.

    Raises:
        UserError: The run folder does not exist, or cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.folder = Path(path_text("the run", path))
        if not os.path.isdir(self.folder):  # unlike `Path`, takes any path
            raise UserError(
                f"{self.folder} is not a folder: pass the folder that kdist train has named; for a"
                " model file, call kdist.load_model(path, strategy=...).evaluate(...)"
            )
        self.settings: Mapping[str, Any] = self._read().settings

    def checkpoints(self) -> list[SavedModel]:
        """Return the checkpoints, the newest first."""
        return [
            SavedModel(
                path=file.path,
                checkpoint=file,
                epoch=file.epoch + (file.batch > 0),
                step=file.batch or None,
            )
            for file in checkpoint_files(self.folder / "checkpoints")
        ]

    def final(self) -> SavedModel | None:
        """Return the model that the run saved when it ended; `None` without a model."""
        path = saved_model(self.folder)
        if path is None or not self.has_result():
            return None
        return SavedModel(path=path, epoch=int(self._read().fact("epochs") or 0) or None)

    def newest(self) -> list[SavedModel]:
        """Return models, the newest first; the final model of a complete run is the newest."""
        final = self.final()
        ended = [] if final is None else [final]
        checkpoints = self.checkpoints()
        is_complete = self.has_result() and self._read().status.is_complete
        return [*ended, *checkpoints] if is_complete else [*checkpoints, *ended]

    def has_result(self) -> bool:
        """Whether the run has ended with a result; resuming a run removes its result."""
        return (self.folder / "summary.json").is_file()

    def has_ended(self) -> bool:
        """Whether the run has a result, or its process on this machine was killed."""
        return self.has_result() or is_abandoned(self.folder / "checkpoints")

    def _read(self) -> RunRecord:
        try:
            return read_run(self.folder, unfinished=True)
        except (UserError, OSError) as error:
            raise UserError(f"cannot evaluate {self.folder}: {error_text(error)}") from error
