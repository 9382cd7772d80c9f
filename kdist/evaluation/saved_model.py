"""What there is to evaluate, found without TensorFlow, and the line of a result."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..arguments import path_text
from ..checkpoint.store import CheckpointFile, checkpoint_files, is_abandoned
from ..errors import UserError, error_text
from ..runs.folder import saved_model
from ..runs.record import RunRecord, read_run
from .evaluate_options import EvaluateOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a saved model is on the test data.

    Attributes:
        epoch: The epoch that the model is from, counted from 1; `None` if unknown.
        step: Steps of this epoch that were trained; `None` for its end, or if unknown.
        images: Number of images, each of which counts once; for your own model the number of
            samples, or `None` if it is unknown.
        accuracy: Share of the images whose most probable class is correct, from 0 to 1; also known
            as precision @ 1; `None` for your own model without this metric.
        loss: The loss that the model is trained with, weight penalties included: `val_loss`.
        weights: `"averaged"`, `"trained"`, or `"saved"` if it is unknown which of these the file
            contains.
        file: Name of the file.
        metrics: Other metrics, by name.
    """

    epoch: int | None
    step: int | None
    images: int | None
    accuracy: float | None
    loss: float | None
    weights: str
    file: str
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return _line(self._cells().items())

    def heading(self) -> str:
        """Return the heading of a table of such evaluations."""
        return _line((name, name) for name in self._cells())

    def _cells(self) -> dict[str, str]:
        at_end = "end" if self.epoch is not None else "-"
        results = {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}
        known = {name: f"{value:.4f}" for name, value in results.items() if value is not None}
        return {
            "epoch": "-" if self.epoch is None else f"{self.epoch}",
            "step": at_end if self.step is None else f"{self.step}",
            "images": "-" if self.images is None else f"{self.images}",
            **known,
            "weights": self.weights,
            "file": self.file,
        }


_LEAST_WIDTHS = {"epoch": 5, "step": 6, "images": 7, "weights": 10}
_LEAST_WIDTH = 8  # of a metric


def _line(cells: Iterable[tuple[str, str]]) -> str:
    *columns, (_, last) = cells
    widths = (max(len(name), _LEAST_WIDTHS.get(name, _LEAST_WIDTH)) for name, _ in columns)
    padded = (text.rjust(width) for (_, text), width in zip(columns, widths, strict=True))
    return "  ".join([*padded, last])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A checkpoint of a run, or a `.keras` file.

    Attributes:
        path: The file.
        checkpoint: The checkpoint; `None` for a `.keras` file.
        epoch: The epoch that it is from, counted from 1; `None` if unknown.
        step: Steps of this epoch that were trained; `None` for its end, or if unknown.
    """

    path: Path
    checkpoint: CheckpointFile | None = None
    epoch: int | None = None
    step: int | None = None


class RunModels:
    """The models of a run of `kdist train`.

    Args:
        folder: The run folder.

    Attributes:
        folder: The run folder.
        settings: The run's.

    Raises:
        UserError: It is no run folder, or cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Mapping[str, Any] = self._read().settings

    def checkpoints(self) -> list[SavedModel]:
        """Return the checkpoints, the newest first."""
        return [
            SavedModel(
                path=one.path,
                checkpoint=one,
                epoch=one.epoch + (one.batch > 0),
                step=one.batch or None,
            )
            for one in checkpoint_files(self.folder / "checkpoints")
        ]

    def final(self) -> SavedModel | None:
        """Return the model that the run has saved as it ended; `None` if there is none."""
        path = saved_model(self.folder)
        if path is None or not self.has_ended():
            return None
        return SavedModel(path=path, epoch=int(self._read().fact("epochs") or 0) or None)

    def has_ended(self) -> bool:
        """Whether the run has a result; a run that is resumed has none again."""
        return (self.folder / "summary.json").is_file()

    def is_complete(self) -> bool:
        """Whether the run was trained to its end."""
        return self.has_ended() and self._read().status.is_complete

    def is_abandoned(self) -> bool:
        """Whether the run has neither a result nor a process of this machine any more."""
        return not self.has_ended() and is_abandoned(self.folder / "checkpoints")

    def saves_model(self) -> bool:
        """Whether a model is to be expected behind the result of a run."""
        has_diverged = self._read().status.word == "diverged"
        return bool(self.settings.get("save_model", True)) and not has_diverged

    def _read(self) -> RunRecord:
        try:
            return read_run(self.folder, unfinished=True)
        except (UserError, OSError) as error:
            raise UserError(f"cannot evaluate {self.folder}: {error_text(error)}") from error


def find_models(path: str, options: EvaluateOptions) -> RunModels | SavedModel:
    """Return the run in a folder, or the model in a file.

    Args:
        path: What the user has named.
        options: How it is to be evaluated.

    Raises:
        UserError: It is neither, or cannot be evaluated in this way.
    """
    place = Path(path_text("the run or the model", path))
    if os.path.isdir(place):  # unlike `Path`, also of a path that no file can have
        return RunModels(place)
    if place.suffix != ".keras" or not os.path.isfile(place):
        if place.name.endswith(".py") or ".py:" in place.name:
            raise UserError(
                f"{place} makes a model that is not trained: pass the run that has trained it"
            )
        problem = "is neither the folder of a run nor a .keras file"
        if not os.path.exists(place):
            problem = "does not exist"
        raise UserError(
            f"{place} {problem}: pass the folder that kdist train has named, or the file of a model"
        )
    for name in ("watch", "averaged"):
        if getattr(options, name):
            raise UserError(
                f"received --{name} and the file {place}, but a file has one model, whose weights"
                f" are those that it was saved with: pass a run, or remove --{name}"
            )
    return _final_of_run(place) or SavedModel(path=place)


def _final_of_run(path: Path) -> SavedModel | None:
    """The model that a run has ended with, if a file is that; else `None`."""
    try:
        final = RunModels(path.parent).final()
    except UserError:
        return None
    return final if final is not None and final.path == path else None


def settings_of(path: Path) -> Mapping[str, Any]:
    """Return the settings of the run whose folder a model is in; nothing for any other file."""
    try:
        return read_run(path.parent, unfinished=True).settings
    except (UserError, OSError):
        return {}
