"""`CheckpointStore`: the generations of one run, in a folder of their own."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..atomic_files import explain_write_errors, full_disk_error
from ..errors import RefusedCheckpointsError, UserError
from .folder_lock import FolderLock
from .generation import DamagedGenerationError, Generation, file_name, write_generation

_PART = ".part-"
Found = tuple[Generation, dict[str, np.ndarray], dict[str, Any]]
"""A generation with its arrays and state."""

_HINT = "pass a folder on a file system that takes files and renames them"


def generations(folder: str | os.PathLike[str]) -> list[Generation]:
    """Return the checkpoints in a folder, the newest first, unread.

    Args:
        folder: May be missing.

    Example:
        ```python
        for generation in kdist.checkpoints.generations("checkpoints"):
            generation.verify()
        ```
    """
    found = [Generation.of_file(path) for path in Path(folder).glob("e*-b*-*")]
    return sorted((one for one in found if one is not None), reverse=True)


def newest_generation(
    folder: Path, *, announce: Callable[[str], None], damaged: set[Path] | None = None
) -> Found | None:
    """Return the newest whole generation of a folder with its arrays and state; `None` without any.

    Args:
        folder: May be missing.
        announce: Called with a line for each damaged one.
        damaged: Gets the files of these.

    Raises:
        UserError: There are generations, and all of them are damaged; or the newest whole one is in
            a format of a newer kdist.
    """
    found = generations(folder)
    for generation in found:
        try:
            return generation, *generation.read()
        except DamagedGenerationError as error:
            if damaged is not None:
                damaged.add(generation.path)
            announce(f"Skipped the damaged checkpoint {generation.path.name}: {error}")
    if found:
        raise RefusedCheckpointsError(
            f"every checkpoint in {folder} is damaged: put a copy there, or pass another folder to"
            " begin anew"
        )
    return None


class CheckpointStore:
    """Writes and reads the generations of one run.

    A generation is committed by a rename once its content is on disk. Older ones are removed only
    after that. As a context manager, the store locks the folder until the block ends.

    Args:
        folder: The folder; created if it does not exist.
        keep: Number of generations to keep, at least 1.
        announce: Called with one line for each thing that the user should know.

    Raises:
        UserError: Another process uses the folder, or it is not writable.

    Example:
        ```python
        with CheckpointStore(Path("checkpoints")) as store:
            store.commit(epoch=3, batch=0, arrays={"weight": weight}, state={"seed": 1})
            generation, arrays, state = store.newest()
        ```
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
                for left in folder.glob(f"{_PART}*"):  # of a process that was killed
                    left.unlink()
                self._try_rename()
        except BaseException:
            self.close()
            raise
        if not self._lock.is_supported:
            announce(
                f"The file system of {folder} has no locks, so nothing keeps a second process"
                " from writing there: start one run at a time."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def newest(self) -> Found | None:
        """Return the newest whole generation with its arrays and state; `None` without any.

        A line names each damaged one; it is removed once a newer one is committed.

        Raises:
            UserError: There are generations, and all of them are damaged; or the newest whole one
                is in a format of a newer kdist.
        """
        return newest_generation(self.folder, announce=self._announce, damaged=self._damaged)

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> Generation:
        """Write a generation, then remove those beyond `keep`.

        If the disk is full, the oldest are removed to make room, but never the newest.

        Args:
            epoch: The epoch that the run is in, counted from 0.
            batch: Steps of this epoch that were trained.
            arrays: Arrays by name.
            state: A value that JSON can hold.

        Raises:
            OSError: It cannot be written; the newest generation is unchanged.
        """
        while True:
            try:
                generation = self._write(epoch, batch, arrays, state)
                break
            except OSError as error:
                if full_disk_error(error) is None or not self._remove_oldest():
                    raise
        others = [one for one in generations(self.folder) if one != generation]
        whole = [one for one in others if one.path not in self._damaged]
        for old in {*others} - {*whole[: self.keep - 1]}:
            old.path.unlink(missing_ok=True)
        return generation

    def check_room(self, size: int) -> None:
        """Check at the start that a generation fits on the disk.

        Args:
            size: Its bytes.

        Raises:
            UserError: It does not, even if older generations are removed.
        """
        removable = self._removable()
        room = shutil.disk_usage(self.folder).free + sum(
            one.path.stat().st_size for one in removable
        )
        if room < size:
            raise UserError(
                f"no space left on device: {self.folder} has room for {room / 1e6:.1f} MB, and a"
                f" checkpoint takes {size / 1e6:.1f} MB: free some, or pass another folder"
            )

    def _write(
        self, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> Generation:
        with self._part() as part:
            with open(part, "wb") as file:
                digest = write_generation(file, arrays, state)
                file.flush()
                os.fsync(file.fileno())
            path = self.folder / file_name(epoch, batch, digest)
            part.replace(path)
        self._sync_folder()
        return Generation(epoch=epoch, batch=batch, digest=digest, path=path)

    def _remove_oldest(self) -> bool:
        """Make room; returns whether there was a generation besides the newest."""
        removable = self._removable()
        if removable:
            removable[-1].path.unlink(missing_ok=True)
            self._announce(
                f"The disk is full: removed the old checkpoint {removable[-1].path.name}"
            )
        return bool(removable)

    def _removable(self) -> list[Generation]:
        """All but the newest whole one, in the order in which they are worth keeping."""
        found = generations(self.folder)
        return sorted(found, key=lambda one: one.path in self._damaged)[1:]

    def _try_rename(self) -> None:
        with self._part() as part:
            part.write_bytes(b"")
            part.replace(part.with_name(f"{part.name}.renamed"))
            part.with_name(f"{part.name}.renamed").unlink()

    @contextlib.contextmanager
    def _part(self) -> Iterator[Path]:
        part = self.folder / f"{_PART}{os.getpid()}"
        try:
            yield part
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _sync_folder(self) -> None:
        """Have the rename on the disk, before anything older is removed."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
