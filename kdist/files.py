"""Writing of files, completely or not at all, and reading of users' text files."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from .arguments import local_path
from .errors import UserError, message_without_path


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Write a temporary file, which replaces `path` if the `with` block ends without an error.

    Readers of `path` see the old or the new file, never an incomplete one. The temporary file is in
    the same folder, and has the same suffix.

    Examples:
        ```python
        with atomic_path(Path("model.keras")) as part:
            model.save(part)
        ```
    """
    # Several processes may write the same file; each process has its own temporary file.
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is reported
            part.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old or the new content, never an incomplete one."""
    with atomic_path(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def create_writable_folder(path: Path, *, option: str) -> list[Path]:
    """Create a folder with its parents if it is missing, and check that it is writable.

    Returns the folders that were created, for `remove_empty`; an error removes them.
    """
    created: list[Path] = []
    try:
        created = missing_folders(path)
        path.mkdir(parents=True, exist_ok=True)
        # Permissions do not show a full disk, and root has all permissions.
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        remove_empty(created)
        raise _unwritable(path, error, f"pass another {option}") from error
    return created


def check_writable_folder(path: Path, *, option: str) -> None:
    """Check that a folder can be created or is writable; created folders are removed again."""
    remove_empty(create_writable_folder(path, option=option))


@contextlib.contextmanager
def folder_for_files(path: Path) -> Iterator[None]:
    """Create a folder with its parents for files that the block writes.

    If the block raises an error, the created folders are removed with their contents.
    """
    created = missing_folders(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        if created:
            shutil.rmtree(path, ignore_errors=True)
        remove_empty(created)
        raise


def missing_folders(path: Path) -> list[Path]:
    """Return the folders among `path` and its parents that do not exist, the innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the empty folders of a list."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def check_output_file(path: str, *, option: str) -> Path:
    """Return the path of a file to write: an existing regular file, or a free path.

    A symbolic link is resolved, because writing would replace the link.
    """
    file = Path(local_path(option, path))
    with explain_write_errors(file, hint=f"pass another {option}"):
        if file.is_symlink():
            file = Path(os.path.realpath(file))
        if file.exists() and not file.is_file():
            raise OSError("it is not a regular file")
    return file


@contextlib.contextmanager
def explain_write_errors(path: Path, *, hint: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `UserError` that names the remedy."""
    try:
        yield
    except OSError as error:
        # The error of a rename names two files; the user knows the second.
        raise _unwritable(error.filename2 or error.filename or path, error, hint) from error


def _unwritable(path: str | Path, error: OSError, hint: str) -> UserError:
    return UserError(f"cannot write {path}: {message_without_path(error)}; {hint}")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8; raise `ValueError` for devices."""
    kind = Path(path).stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(21, "Is a directory", str(path))
    if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
        raise ValueError("it is not a regular file")
    return Path(path).read_bytes().decode("utf-8-sig")
