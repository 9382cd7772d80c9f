"""The saved models of a run of `kdist train`, and the lines of the table."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...arguments import is_remote
from ...checkpoint.checkpoint_file import CheckpointFile, checkpoint_files
from ...checkpoint.folder_lock import is_abandoned
from ...errors import UserError, error_text
from ...remote import RemoteFolder, folder_address
from ...training.run_folder import REMOTE_FILES, find_saved_model
from ...training.run_record import RunRecord, read_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A checkpoint of a run, or its final model, which has no `checkpoint`."""

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
        return self._line(self._cells())

    def heading(self) -> str:
        """Return the heading of a table of evaluations."""
        return self._line({name: name for name in self._cells()})

    def _cells(self) -> dict[str, str]:
        return {
            "epoch": "-" if self.epoch is None else f"{self.epoch}",
            "step": "end" if self.step is None else f"{self.step}",
            "samples": "-" if self.samples is None else f"{self.samples}",
            **{name: f"{value:.4f}" for name, value in self.metrics.items()},
            "weights": self.weights,
            "file": self.file,
        }

    @staticmethod
    def _line(cells: Mapping[str, str]) -> str:
        *columns, (_, file) = cells.items()
        return "  ".join([*(text.rjust(max(len(name), 8)) for name, text in columns), file])


def open_run_folder(path: str) -> tuple[Path, RemoteFolder | None]:
    """Return a run's folder and `None`; of a remote run, the local copy and the remote folder.

    Raises:
        UserError: There is no such folder.
    """
    address = folder_address("the run", path)
    if is_remote(address):
        remote = RemoteFolder(address, REMOTE_FILES)
        remote.download()
        if not (remote.local / "config.json").is_file():
            raise UserError(f"cannot evaluate {address}: a run's config.json is missing there")
        return remote.local, remote
    folder = Path(address)
    if not os.path.isdir(folder):  # unlike `Path`, takes any path
        raise UserError(
            f"{folder} is not a folder: pass the folder that kdist train has printed; for a"
            " model file, call kdist.load_model(path, strategy=...).evaluate(...)"
        )
    return folder, None


def read_evaluated_run(folder: Path) -> RunRecord:
    """Read a run, which may be unfinished; raise `UserError` if it cannot be read."""
    try:
        return read_run(folder, unfinished=True)
    except (UserError, OSError) as error:
        raise UserError(f"cannot evaluate {folder}: {error_text(error)}") from error


def list_models(folder: Path) -> list[SavedModel]:
    """Return models, the newest first; the final model of a complete run is the newest."""
    final = _final_model(folder)
    checkpoints = _list_checkpoints(folder)
    if final is None:
        return checkpoints
    is_complete = read_evaluated_run(folder).status == "complete"
    return [final, *checkpoints] if is_complete else [*checkpoints, final]


def watch_models(folder: Path, wait: Callable[[], None]) -> Iterator[SavedModel]:
    """Yield each checkpoint as it appears, and at the end the final model."""
    seen: set[Path] = set()
    had_ended = False
    while True:
        # Look for the end of the run first: files that were saved before the end are then seen.
        has_ended = _has_result(folder) or is_abandoned(folder / "checkpoints")
        for model in reversed(_list_checkpoints(folder)):
            if model.path not in seen:
                seen.add(model.path)
                yield model
        final = _final_model(folder)
        # The run saves its model after its result, so the loop looks for the model a last time.
        if has_ended and (final is not None or had_ended):
            break
        had_ended = has_ended
        wait()
    if final is not None:
        yield final


def _list_checkpoints(folder: Path) -> list[SavedModel]:
    """Return the checkpoints, the newest first."""
    return [
        SavedModel(
            path=file.path,
            checkpoint=file,
            epoch=file.epoch + (file.batch > 0),
            step=file.batch or None,
        )
        for file in checkpoint_files(folder / "checkpoints")
    ]


def _final_model(folder: Path) -> SavedModel | None:
    path = find_saved_model(folder)
    if path is None or not _has_result(folder):
        return None
    return SavedModel(
        path=path, epoch=int(read_evaluated_run(folder).summary_number("epochs") or 0) or None
    )


def _has_result(folder: Path) -> bool:
    """Whether the run has ended with a result; resuming a run removes its result."""
    return (folder / "summary.json").is_file()
