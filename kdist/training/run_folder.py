"""`RunFolder`: the files of a run; `OtherWorkersFolder`: the folder of workers that write none."""

import contextlib
import datetime
import itertools
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..arguments import is_remote
from ..errors import UserError, message_without_path
from ..files import (
    atomic_path,
    create_writable_folder,
    explain_write_errors,
    read_text,
    remove_empty,
)
from ..remote import RemoteFolder
from ..tracking.make_trackers import TRACKERS

RUNS = Path("runs")
"""Default folder of runs and sweeps, in the working directory."""

_DISK_HINT = "free disk space, or pass another --run-dir"
# Files of a run without checkpoints; a killed process leaves unfinished files with a prefix.
_FILE_NAMES = r"(config|plan|summary)\.json|history\.csv|model\.keras|model\.weights\.h5"
REMOTE_FILES = re.compile(rf"{_FILE_NAMES}|checkpoints/[^./]+\.safetensors|wandb/sent\.json")
_RUN_FILE_NAMES = re.compile(rf"(\.\d+\.)?({_FILE_NAMES})|{'|'.join(TRACKERS)}")


def find_saved_model(folder: Path) -> Path | None:
    """Return the trained model in a run folder; `None` if there is none.

    A run saves only the weights if a file cannot describe the user's model.
    """
    files = (folder / "model.keras", folder / "model.weights.h5")
    return next((file for file in files if file.is_file()), None)


class RunFolder:
    """The folder of a run: `config.json`, `history.csv`, `summary.json`, `model.keras`.

    Args:
        path: The folder, created with its parents; `None` makes `runs/<date>-<time>`. The folder
            must be empty, except for files of a run that was killed before its first step. A remote
            folder is written in a local copy, which `upload` uploads.
        resumed: Whether the folder belongs to a run that is resumed, and may have files.

    Attributes:
        path: The local folder.
        remote: The remote folder, or `None`.
        is_resumed: Whether the run is resumed.

    Raises:
        UserError: The folder is not empty, not a folder, or cannot be written.
    """

    is_written = True
    """Whether this process writes the run."""
    remote: RemoteFolder | None = None

    def __init__(self, path: str | None, *, resumed: bool = False) -> None:
        self.is_resumed = resumed
        if path is not None and is_remote(path):
            self.remote = _open_remote(path, resumed=resumed)
            path = str(self.remote.local)
        self.path = Path(path) if path is not None else make_unused_path()
        self._created_folders = create_writable_folder(self.path, option="--run-dir")
        if not resumed and not self._was_never_begun():
            raise UserError(
                f"the run folder {self.path} is not empty: pass another --run-dir, or delete the"
                " folder"
            )

    def discard(self) -> None:
        """Remove the files of a new run without a result, and the created folders if empty."""
        if not self.is_resumed and not self._holds_a_result():
            names = ("config.json", "plan.json", self.history.name, "checkpoints/.lock")
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            remove_empty([self.checkpoints])
        elif self.remote is not None:
            with contextlib.suppress(OSError):  # the error that ends the run is reported
                self.remote.upload()
        remove_empty(self._created_folders)

    def upload(self) -> None:
        """Upload the files, if the folder is remote.

        Raises:
            UserError: The remote folder cannot be written. The local copy stays on the disk.
        """
        if self.remote is None:
            return
        try:
            self.remote.upload()
        except OSError as error:
            raise UserError(
                f"cannot write to {error}; the run is kept in {self.remote.keep_copy()}"
            ) from error

    def show(self, text: object) -> str:
        """Return a text, with the address of a remote folder in place of its local copy."""
        return str(text) if self.remote is None else self.remote.insert_address(text)

    def _was_never_begun(self) -> bool:
        """Whether nothing was trained here: `config.json` is written before the first step."""
        if any(self.checkpoints.glob("[!.]*")):
            return False
        unfinished = re.compile(r"plan\.json|checkpoints|\.\d+\.(plan|config)\.json")
        return all(unfinished.fullmatch(file.name) for file in self.path.iterdir())

    def _holds_a_result(self) -> bool:
        if (self.path / "summary.json").exists() or any(self.checkpoints.glob("[!.]*")):
            return True
        if not self.history.exists():
            return False
        heading_and_epochs = self.history.read_text(encoding="utf-8").splitlines()
        return len(heading_and_epochs) > 1

    @property
    def history(self) -> Path:
        """The table of the epochs, with a line per epoch."""
        return self.path / "history.csv"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model.keras"

    @property
    def weights(self) -> Path:
        """The file of weights that replaces `model` if the trained model cannot be serialized."""
        return self.path / "model.weights.h5"

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the values in the file `name`; `None` if there is no such file.

        Raises:
            UserError: The file cannot be read.
        """
        path = self.path / name
        try:
            return dict(json.loads(read_text(path)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"cannot read {path}: {message_without_path(error)}") from error

    def remove_summary(self) -> None:
        """Remove the summary of a run before the run is trained further."""
        with explain_write_errors(self.path, hint=_DISK_HINT):
            (self.path / "summary.json").unlink(missing_ok=True)

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` to the file `name`, completely or not at all.

        Raises:
            UserError: The file cannot be written.
        """
        text = json.dumps(values, indent=2) + "\n"
        self.write(self.path / name, lambda part: part.write_text(text, encoding="utf-8"))

    def write(self, path: Path, save: Callable[[Path], object]) -> None:
        """Write a file of the run with `save`, such as `model.save`, completely or not at all.

        Raises:
            UserError: The file cannot be written.
        """
        with explain_write_errors(path, hint=_DISK_HINT), atomic_path(path) as part:
            save(part)


class OtherWorkersFolder(RunFolder):
    """The run folder of a worker that is not the chief, and writes nothing."""

    is_written = False

    def __init__(self) -> None:
        self.path = Path("runs")
        self.is_resumed = False

    def discard(self) -> None:
        """Do nothing: the chief discards the run."""

    def remove_summary(self) -> None:
        """Do nothing: the chief removes the file."""

    def write(self, path: Path, save: Callable[[Path], object]) -> None:
        """Do nothing: the chief writes the file."""


def _open_remote(address: str, *, resumed: bool) -> RemoteFolder:
    remote = RemoteFolder(address, REMOTE_FILES)
    if not resumed and remote.list_names():
        raise UserError(
            f"the run folder {address} is not empty: pass another --run-dir, or delete the folder"
        )
    remote.check_writable()
    remote.download()
    return remote


def clear_run(path: Path) -> bool:
    """Remove the files of a run without checkpoints, unless its folder has foreign files.

    Returns:
        Whether any file was removed.
    """
    with explain_write_errors(path, hint="pass another --run-dir"):
        files = list(path.iterdir()) if path.exists() else []
        if not all(_RUN_FILE_NAMES.fullmatch(file.name) for file in files):
            return False
        for file in files:
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)
            else:
                file.unlink()
    return bool(files)


def make_unused_path() -> Path:
    """Return a path in `runs/` that does not exist yet: the date and the time."""
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    names = (stamp if tries == 1 else f"{stamp}-{tries}" for tries in itertools.count(1))
    return next(RUNS / name for name in names if not (RUNS / name).exists())
