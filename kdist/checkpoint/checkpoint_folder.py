"""`CheckpointStore`: writes, verifies and removes the checkpoint files of a training.

`checkpoint_file.py` has the format of a file, `folder_lock.py` the lock of the folder.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RefusedCheckpointsError
from ..files import explain_write_errors
from .checkpoint_file import (
    CheckpointFile,
    DamagedCheckpointError,
    checkpoint_files,
    write_checkpoint,
)
from .folder_lock import FolderLock

_PART = ".part-"
LoadedCheckpoint = tuple[CheckpointFile, dict[str, np.ndarray], dict[str, Any]]
"""A checkpoint with its arrays and state."""

_HINT = "pass a folder in which files can be created and renamed"


def newest_checkpoint(
    folder: Path, *, announce: Callable[[str], None], damaged: set[Path] | None = None
) -> LoadedCheckpoint | None:
    """Return the newest whole checkpoint of a folder with its arrays and state.

    Returns `None` for a folder without checkpoints. For each damaged checkpoint, `announce` is
    called with a line, and the set `damaged` receives the path.

    Raises:
        RefusedCheckpointsError: There are checkpoints, and all of them are damaged.
        UserError: The newest whole checkpoint has the format of a newer kdist.
    """
    found = checkpoint_files(folder)
    for checkpoint in found:
        try:
            return checkpoint, *checkpoint.read()
        except DamagedCheckpointError as error:
            if damaged is not None:
                damaged.add(checkpoint.path)
            announce(f"Skipped the damaged checkpoint {checkpoint.path.name}: {error}")
    if found:
        raise RefusedCheckpointsError(
            f"every checkpoint in {folder} is damaged: restore a copy of a checkpoint there, or"
            " pass another folder to start over"
        )
    return None


class CheckpointStore:
    """Writes and reads the checkpoints of a run.

    A checkpoint is committed by a rename once its content is on disk. Older checkpoints are removed
    only after the rename. The folder is created if it does not exist, and locked until the store is
    closed: `UserError` if another process uses it. `announce` is called with a line for each event
    that the user should know.
    """

    def __init__(
        self, folder: Path, *, keep: int = 3, announce: Callable[[str], None] = print
    ) -> None:
        self.folder = folder
        self.keep = keep
        self._announce = announce
        self._damaged: set[Path] = set()
        with explain_write_errors(folder, hint=_HINT):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder)
        try:
            with explain_write_errors(folder, hint=_HINT):
                for leftover in folder.glob(f"{_PART}*"):  # of a killed process
                    leftover.unlink()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def read_newest(self) -> LoadedCheckpoint | None:
        """Return the `newest_checkpoint`; the next `commit` removes the damaged checkpoints."""
        return newest_checkpoint(self.folder, announce=self._announce, damaged=self._damaged)

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> CheckpointFile:
        """Write a checkpoint, then remove damaged checkpoints, and old checkpoints beyond `keep`.

        After an `OSError`, all other checkpoints are unchanged.
        """
        checkpoint = self._write(epoch, batch, arrays, state)
        older = [old for old in checkpoint_files(self.folder) if old != checkpoint]
        whole = [old for old in older if old.path not in self._damaged]
        for old in {*older} - {*whole[: self.keep - 1]}:
            old.path.unlink(missing_ok=True)
        return checkpoint

    def _write(
        self, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> CheckpointFile:
        with self._temporary_file() as part:
            with open(part, "wb") as file:
                digest = write_checkpoint(file, arrays, state)
                file.flush()
                os.fsync(file.fileno())
            path = self.folder / f"e{epoch:06d}-b{batch:09d}-{digest}.safetensors"
            part.replace(path)
        self._sync_folder()
        return CheckpointFile(epoch=epoch, batch=batch, digest=digest, path=path)

    @contextlib.contextmanager
    def _temporary_file(self) -> Iterator[Path]:
        part = self.folder / f"{_PART}{os.getpid()}"
        try:
            yield part
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _sync_folder(self) -> None:
        """Flush the rename to disk, before older checkpoints are removed."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
