"""`CheckpointStore`: writes, verifies and removes the checkpoint files of a training."""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

import numpy as np

from ..errors import RefusedCheckpointsError, UserError, error_text
from ..files import explain_write_errors, full_disk_error

FORMAT = 1
# Types that `safetensors` reads into NumPy arrays. Further types (bfloat16) are written as bytes.
_TYPE_NAMES = {
    "bool": "BOOL",
    "complex64": "C64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
}
_TYPES_OF_BYTES = "types_of_bytes"
FILE_NAME = re.compile(r"e(\d+)-b(\d+)-([0-9a-f]{32})\.safetensors")


class DamagedCheckpointError(Exception):
    """A checkpoint file is unreadable or has changed since it was written; the message says how."""


@dataclasses.dataclass(frozen=True, order=True, kw_only=True)
class CheckpointFile:
    """A checkpoint of a run.

    Attributes:
        epoch: The epoch that the run is in, counted from 0.
        batch: Trained steps of this epoch; 0 for the end of the previous epoch.
        digest: The first 128 bits of the file's SHA-256, as 32 hexadecimal digits.
        path: The file.
    """

    epoch: int
    batch: int
    digest: str
    path: Path

    @classmethod
    def of_file(cls, path: Path) -> Self | None:
        """Return the checkpoint in a file; `None` if the file is not named like a checkpoint."""
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            return None
        epoch, batch, digest = match.groups()
        return cls(epoch=int(epoch), batch=int(batch), digest=digest, path=path)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def read(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and the state.

        Raises:
            DamagedCheckpointError: The file cannot be read, or has changed since it was written.
            UserError: The file is whole, but has the format of a newer kdist.
        """
        from safetensors import SafetensorError, safe_open

        self.verify()
        try:
            with safe_open(self.path, framework="numpy") as file:
                metadata = dict(file.metadata())
                arrays = dict(_read_arrays(file, json.loads(metadata.get(_TYPES_OF_BYTES, "{}"))))
        except (OSError, ValueError, SafetensorError) as error:
            raise DamagedCheckpointError(error_text(error)) from error
        if int(metadata["format"]) > FORMAT:
            # Not reported as damaged: the store skips damaged files and later removes them.
            raise UserError(
                f"{self.path} was written by a newer version of kdist, in format"
                f" {metadata['format']}, and this version reads up to {FORMAT}: update kdist"
            )
        return arrays, json.loads(metadata["state"])

    def verify(self) -> None:
        """Compare the file with the digest in its name, without TensorFlow.

        Raises:
            DamagedCheckpointError: The digests differ, or the file cannot be read.
        """
        try:
            with open(self.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise DamagedCheckpointError(error_text(error)) from error
        if _short_digest(digest) != self.digest:
            raise DamagedCheckpointError("its content is not what was written")


def write_checkpoint(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> str:
    """Write a safetensors file of arrays and a JSON-compatible state; return its short digest.

    The library's own writers return the whole file as bytes, or report a full disk as text without
    its error number. The written bytes are hashed: bytes that were read back would hide the errors
    of a failing disk.
    """
    # Arrays of wide numbers come first, so that each array begins at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    of_bytes = {n: arrays[n].dtype.name for n in order if arrays[n].dtype.name not in _TYPE_NAMES}
    metadata = {
        "format": str(FORMAT),
        "state": _compact_json(state),
        _TYPES_OF_BYTES: json.dumps(of_bytes),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPE_NAMES.get(array.dtype.name, "U8"),
            "shape": [*array.shape, *([array.dtype.itemsize] if name in of_bytes else [])],
            "data_offsets": [begin, end],
        }
    text = _compact_json(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    header_bytes = memoryview(len(text).to_bytes(8, "little") + text)
    array_bytes = (_array_bytes(arrays[name]) for name in order)
    for content in itertools.chain([header_bytes], array_bytes):
        digest.update(content)
        file.write(content)
    return _short_digest(digest)


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _short_digest(digest: Any) -> str:
    return str(digest.hexdigest())[:32]


def _read_arrays(file: Any, of_bytes: Mapping[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    import ml_dtypes  # registers bfloat16 and similar types; a dependency of Keras

    for name in file.keys():  # noqa: SIM118 - not a mapping
        array = file.get_tensor(name)
        if name in of_bytes:
            kind = np.dtype(getattr(ml_dtypes, of_bytes[name], of_bytes[name]))
            array = array.view(kind)[..., 0]
        yield name, array


def _array_bytes(array: np.ndarray) -> memoryview:
    if not array.size:
        return memoryview(b"")
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    flat = np.ascontiguousarray(little_endian).reshape(array.size)
    return flat.view(np.uint8).data


_LOCK = ".lock"
# Error numbers of file systems without locks.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)

_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


class FolderLock:
    """Locks an existing folder until `release`, or until the process ends in any way.

    Attributes:
        is_supported: Whether the file system can keep other processes out.

    Raises:
        UserError: Another process, or this process, holds the folder; the message names the holder.
        OSError: The lock file cannot be written or locked.
    """

    def __init__(self, folder: Path) -> None:
        self.is_supported = True
        self._file: IO[str] | None = open(folder / _LOCK, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = _read_holder(self._file)
                self.release()
                raise UserError(
                    f"{folder} is in use by {holder}: wait until it has ended, or pass another"
                    " folder"
                ) from error
            if error.errno not in _UNSUPPORTED:
                self.release()
                raise
            self.is_supported = False
        _write_holder(self._file)
        _held.add(self)

    def release(self) -> None:
        """Unlock the folder; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_abandoned(folder: Path) -> bool:
    """Whether a folder's last holder ran on this machine, and no process holds the folder now.

    The lock of a process on another machine may be invisible here.
    """
    try:
        with open(folder / _LOCK, encoding="utf-8") as file:
            if json.loads(file.read())["host"] != socket.gethostname():
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError, KeyError, TypeError):  # held, or the holder is being written
        return False
    return True


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()  # closes the child's descriptor; the parent keeps the lock


# Without this release, a forked child would keep the lock after its parent was killed.
os.register_at_fork(after_in_child=_release_in_child)


def _write_holder(file: IO[str]) -> None:
    file.truncate(0)
    holder = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv)[:200],
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    file.write(json.dumps(holder))
    file.flush()


def _read_holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read())
        return (
            f"process {holder['process']} on {holder['host']} ({holder['command']}) since"
            f" {holder['since']}"
        )
    except (ValueError, KeyError, TypeError):  # the holder is being written
        return "another process"


_PART = ".part-"
Found = tuple[CheckpointFile, dict[str, np.ndarray], dict[str, Any]]
"""A checkpoint with its arrays and state."""

_HINT = "pass a folder on a file system that takes files and renames them"


def checkpoint_files(folder: str | os.PathLike[str]) -> list[CheckpointFile]:
    """Return the checkpoints in a folder, newest first, without reading the files.

    Args:
        folder: The folder; may be missing.

    Example:
        ```python
        for checkpoint in kdist.checkpoint.checkpoint_files("checkpoints"):
            checkpoint.verify()
        ```
    """
    found = [CheckpointFile.of_file(path) for path in Path(folder).glob("e*-b*-*")]
    return sorted((checkpoint for checkpoint in found if checkpoint is not None), reverse=True)


def newest_checkpoint(
    folder: Path, *, announce: Callable[[str], None], damaged: set[Path] | None = None
) -> Found | None:
    """Return the newest whole checkpoint of a folder with its arrays and state; `None` without any.

    `announce` gets a line for each damaged checkpoint, and the set `damaged` its path.

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
            f"every checkpoint in {folder} is damaged: put a copy there, or pass another folder to"
            " begin anew"
        )
    return None


class CheckpointStore:
    """Writes and reads the checkpoints of a run.

    A checkpoint is committed by a rename once its content is on disk. Older checkpoints are removed
    only after the rename. The folder is locked until the store is closed.

    Args:
        folder: The folder; created if it does not exist.
        keep: Number of checkpoints to keep, at least 1.
        announce: Called with a line for each event that the user should know.

    Raises:
        UserError: Another process uses the folder, or the folder is not writable.
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
                for left in folder.glob(f"{_PART}*"):  # of a killed process
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

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def newest(self) -> Found | None:
        """Return the `newest_checkpoint`; the next `commit` removes the damaged checkpoints."""
        return newest_checkpoint(self.folder, announce=self._announce, damaged=self._damaged)

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> CheckpointFile:
        """Write a checkpoint, then remove damaged checkpoints and the oldest ones beyond `keep`.

        If the disk is full, damaged and then old checkpoints are removed to make room. The newest
        whole checkpoint is never removed.

        Raises:
            OSError: The checkpoint cannot be written; the newest checkpoint is unchanged.
        """
        while True:
            try:
                checkpoint = self._write(epoch, batch, arrays, state)
                break
            except OSError as error:
                if full_disk_error(error) is None or not self._remove_oldest():
                    raise
        older = [old for old in checkpoint_files(self.folder) if old != checkpoint]
        whole = [old for old in older if old.path not in self._damaged]
        for old in {*older} - {*whole[: self.keep - 1]}:
            old.path.unlink(missing_ok=True)
        return checkpoint

    def check_room(self, size: int) -> None:
        """Raise `UserError` if the disk has no room for a checkpoint of `size` bytes.

        Older checkpoints can be removed.
        """
        free = shutil.disk_usage(self.folder).free
        room = free + sum(checkpoint.size for checkpoint in self._removable())
        if room < size:
            raise UserError(
                f"no space left on device: {self.folder} has room for {room // 1000:,} kB, and a"
                f" checkpoint takes {-(-size // 1000):,} kB: free some, or pass another folder"
            )

    def _write(
        self, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> CheckpointFile:
        with self._part() as part:
            with open(part, "wb") as file:
                digest = write_checkpoint(file, arrays, state)
                file.flush()
                os.fsync(file.fileno())
            path = self.folder / f"e{epoch:06d}-b{batch:09d}-{digest}.safetensors"
            part.replace(path)
        self._sync_folder()
        return CheckpointFile(epoch=epoch, batch=batch, digest=digest, path=path)

    def _remove_oldest(self) -> bool:
        """Remove the oldest checkpoint; returns whether there was a checkpoint to remove."""
        removable = self._removable()
        if removable:
            oldest = removable[-1].path
            oldest.unlink(missing_ok=True)
            self._announce(f"The disk is full: removed the old checkpoint {oldest.name}")
        return bool(removable)

    def _removable(self) -> list[CheckpointFile]:
        """Return all checkpoints but the newest whole one, from the newest to the oldest.

        Damaged checkpoints are last.
        """
        checkpoints = checkpoint_files(self.folder)
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.path in self._damaged)[1:]

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
        """Flush the rename to disk, before older checkpoints are removed."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
