"""`RemoteFolder`: a folder of a remote storage, such as S3 or GCS, and its local copy."""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .arguments import is_remote, path_text
from .errors import UserError, message_without_path
from .versions import require_extra

RECORD_FILE_PATTERN = re.compile(r"([^./][^/]*/)*[^./][^/]*\.(json|csv)")
"""Small files of runs, at any depth."""
# In these storages a file is visible only when its upload is complete, and a rename copies the
# file.
_OBJECT_STORES = {"s3", "gs", "abfs"}
_PART_NAME = ".part"
_PARALLEL_DOWNLOADS = 8
_COPY_PREFIX = "kdist-copy-"
_SUMMARY_FILE = "summary.json"


def folder_address(name: str, value: object) -> str:
    """Return the path of a local folder, or the address of a remote folder, as text.

    `name` is the argument or option as the caller wrote it, for messages.

    Examples:
        >>> folder_address("run_dir", "memory://runs/1")
        'memory://runs/1'
    """
    text = path_text(name, value)
    if not is_remote(text):
        return text
    if "://" not in text.rstrip("/"):
        raise UserError(
            f"{name} is {text}, but has to be a path, or an address such as s3://bucket/run: pass"
            " an address as text, because Path turns s3:// into s3:/"
        )
    require_extra("remote")
    import fsspec

    try:
        fsspec.get_filesystem_class(fsspec.utils.get_protocol(text))
    except (ImportError, ValueError) as error:
        raise UserError(
            f"{name} is {text}, which cannot be opened ({error}): s3:// needs the package s3fs,"
            " gs:// needs gcsfs; or mount the storage, and pass the path of the mount"
        ) from error
    return text


class RemoteFolder:
    """A folder of a remote storage and its local copy, which is deleted together with the object.

    Files are read and written in the copy, which `download` and `upload` compare with the storage.
    A file appears in the storage whole or not at all. Only one process may upload to a folder. The
    next `RemoteFolder` of any process removes the copies that killed processes left.

    Args:
        address: Address of the folder, such as `"s3://bucket/run"`.
        pattern: Matches the names of the files that are copied.

    Attributes:
        local: The folder of the copy.
    """

    def __init__(self, address: str, pattern: re.Pattern[str]) -> None:
        import fsspec

        self.address = address.rstrip("/")
        self._pattern = pattern
        try:
            self._storage, root = fsspec.core.url_to_fs(self.address)
        except Exception as error:  # each storage has its own errors, as for missing credentials
            raise self._unreadable(error) from error
        self._root = root.rstrip("/")
        protocol = self._storage.protocol
        protocols = {protocol} if isinstance(protocol, str) else {*protocol}
        self._is_object_store = not protocols.isdisjoint(_OBJECT_STORES)
        _remove_left_copies()
        parent, lock = _make_copy_folder()
        self._remover = weakref.finalize(self, _remove_copy, parent, lock)
        self.local = parent / (self.address.rpartition("/")[2] or "folder")
        self.local.mkdir()
        self._stored: dict[str, str] = {}  # facts of each downloaded file
        self._copied: dict[str, tuple[int, int]] = {}  # facts of each file that both sides have

    def list_names(self) -> list[str]:
        """Return the relative names of all files in the storage; a missing folder is empty."""
        return list(self._list_files())

    def download(self) -> None:
        """Download new and changed files, and delete copies of files that the storage lacks now."""
        stored = self._list_files()
        found = {name: facts for name, facts in stored.items() if self._pattern.fullmatch(name)}
        new = [name for name, facts in found.items() if self._stored.get(name) != facts]
        try:
            with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
                list(pool.map(self._download_file, new))
        except Exception as error:
            raise self._unreadable(error) from error
        for name in self._stored.keys() - found.keys():
            (self.local / name).unlink(missing_ok=True)
        self._stored = found
        self._copied = self._copied_files()

    def upload(self) -> None:
        """Upload new and changed files, then delete files that were deleted in the copy.

        Files of the folder itself, such as a run's history, are uploaded before files of
        subfolders, such as checkpoints. `summary.json`, the result of a run, is uploaded last, and
        deleted before all uploads. So a killed upload leaves a run that can be resumed. After an
        `OSError`, the next upload tries again.
        """
        files = self._copied_files()
        changed = [name for name in files if self._copied.get(name) != files[name]]
        removed = self._copied.keys() - files.keys()
        with self._write_errors():
            if _SUMMARY_FILE in removed:
                self._remove_file(_SUMMARY_FILE)
            for name in sorted(
                changed, key=lambda name: (name == _SUMMARY_FILE, "/" in name, name)
            ):
                self._upload_file(name)
                self._copied[name] = files[name]
            for name in removed - {_SUMMARY_FILE}:
                self._remove_file(name)

    def check_writable(self) -> None:
        """Raise `UserError` if no file can be written and removed in the storage."""
        empty = self.local / ".writable"
        empty.touch()
        try:
            with self._write_errors():
                self._upload_file(empty.name)
                self._remove_file(empty.name)
        except OSError as error:
            raise UserError(
                f"cannot write to {error}; check the address and the permissions"
            ) from error
        finally:
            empty.unlink()

    def keep_copy(self) -> Path:
        """Keep the local copy after the end of the process, and return the copy's path."""
        self._remover.detach()
        parent = self.local.parent
        kept = parent.rename(parent.with_name(parent.name.replace(_COPY_PREFIX, "kdist-kept-")))
        self.local = kept / self.local.name
        return self.local

    def insert_address(self, text: object) -> str:
        """Return a text, such as a message, with the address in place of the copy's path."""
        return str(text).replace(str(self.local), self.address)

    @contextlib.contextmanager
    def insert_address_in_errors(self) -> Iterator[None]:
        """Name the address in place of the copy's path in each `UserError` of the `with` block."""
        try:
            yield
        except UserError as error:
            raise type(error)(self.insert_address(error)) from error

    def _list_files(self) -> dict[str, str]:
        """Return facts that change with a file's content, by the name of each stored file."""
        try:
            self._storage.invalidate_cache()
            found = self._storage.find(self._root, detail=True)
        except Exception as error:
            raise self._unreadable(error) from error
        return {path[len(self._root) :].lstrip("/"): str(info) for path, info in found.items()}

    def _copied_files(self) -> dict[str, tuple[int, int]]:
        """Return the time and size of each file of the copy."""
        files = {}
        for path in self.local.rglob("*"):
            name = path.relative_to(self.local).as_posix()
            if self._pattern.fullmatch(name) and path.is_file():
                status = path.stat()
                files[name] = (status.st_mtime_ns, status.st_size)
        return files

    def _download_file(self, name: str) -> None:
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a running training has removed the file
            self._storage.get_file(f"{self._root}/{name}", str(target))

    def _upload_file(self, name: str) -> None:
        source, target = str(self.local / name), f"{self._root}/{name}"
        if self._is_object_store:
            self._storage.put_file(source, target)
            return
        self._storage.makedirs(target.rpartition("/")[0], exist_ok=True)
        part = f"{self._root}/{_PART_NAME}"
        self._storage.put_file(source, part)
        self._storage.mv(part, target)

    def _remove_file(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._storage.rm_file(f"{self._root}/{name}")
        self._copied.pop(name, None)

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each storage has its own errors
            raise OSError(f"{self.address}: {message_without_path(error)}") from error

    def _unreadable(self, error: Exception) -> UserError:
        return UserError(
            f"cannot read {self.address}: {message_without_path(error)}; check the address and"
            " your credentials"
        )


def _make_copy_folder() -> tuple[Path, int]:
    """Create a folder for a copy; return the folder, and a lock that ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix=f".{_COPY_PREFIX}"))
    lock = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(lock, fcntl.LOCK_EX)
    # `_remove_left_copies` finds folders by this name, and deletes a folder without a lock: the
    # folder gets the name after the lock.
    return folder.rename(folder.with_name(folder.name[1:])), lock


def _remove_copy(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_left_copies() -> None:
    """Remove the local copies that killed processes have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_COPY_PREFIX}*"):
        with contextlib.suppress(OSError):  # the copy of another user or of a running process
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


@contextlib.contextmanager
def local_records(path: str) -> Iterator[Path]:
    """Yield a local folder as it is, or a copy of the small files of a remote folder.

    Errors of the block name the address in place of the copy.
    """
    if not is_remote(path):
        yield Path(path)
        return
    remote = RemoteFolder(folder_address("the folder", path), RECORD_FILE_PATTERN)
    remote.download()
    with remote.insert_address_in_errors():
        yield remote.local
