"""Files that are written whole or not at all, and folders that can be written into."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import UserError


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Write a file beside `path` that takes its place once the block has ended without an error.

    Whoever reads `path` finds the old or the new file, never a part.

    Args:
        path: The file, whose folder exists.

    Yields:
        The path to write to: in the same folder, with the same ending.

    Raises:
        OSError: It cannot take the place of `path`, which is then left as it was.

    Example:
        ```python
        with atomic_path(Path("model.keras")) as part:
            model.save(part)
        ```
    """
    # Several processes may write the same file, each its own part.
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            part.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file so that whoever reads it finds the old or the new content, never a part.

    Args:
        path: The file, whose folder exists.
        content: Text is written as UTF-8.

    Raises:
        OSError: It cannot be written; what was there is left as it was.
    """
    with atomic_path(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def writable_folder(path: Path, *, option: str) -> Path:
    """Make a folder with its parents where it is missing, and check that it takes files.

    Args:
        path: The folder.
        option: The command line's option that names it, such as `"--output"`.

    Returns:
        `path`.

    Raises:
        UserError: It cannot be made or written into.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Permissions do not tell of a full disk, and root has them all.
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise _unwritable(path, error, f"pass another {option}") from error
    return path


@contextlib.contextmanager
def explain_write_errors(path: Path, *, hint: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `UserError` that says how to fix it.

    Args:
        path: What is written, named where the error names no file.
        hint: What the caller should do instead, as a sentence without its full stop.

    Raises:
        UserError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        # Of the two files of a rename, the second is the one that the caller knows.
        raise _unwritable(error.filename2 or error.filename or path, error, hint) from error


def _unwritable(path: str | Path, error: OSError, hint: str) -> UserError:
    return UserError(f"cannot write {path}: {error.strerror or error}; {hint}")
