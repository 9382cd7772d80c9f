"""The folder in which a case runs: laid out, and compared afterwards."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .cases import Case


@contextlib.contextmanager
def folder_of(case: Case) -> Iterator[Path]:
    """Make the folder of a case, with the links and files that odd paths name.

    Yields:
        Its path; it is removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="kdist-fuzz-") as name:
        folder = Path(name)
        (folder / "file").write_bytes(b"not mine\n")
        (folder / "folder").mkdir()
        (folder / "folder" / "file").write_bytes(b"nor this\n")
        (folder / "link").symlink_to("folder")
        (folder / "loop").symlink_to("loop")
        (folder / "dangling").symlink_to("nowhere")
        os.mkfifo(folder / "fifo")
        for path, content in case.files.items():
            place = folder / path
            if content is None:
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        yield folder


def contents(folder: Path) -> dict[str, object]:
    """What is in a folder: kinds and sizes by path, without the files of a search."""
    found: dict[str, object] = {}
    for parent, folders, files in os.walk(folder):
        if "study.json" in files:  # it may sum itself up before it fails
            folders.clear()
            continue
        for name in (*folders, *files):
            path = Path(parent, name)
            about = path.lstat()
            kind = os.path.islink(path) or about.st_mode & 0o170000
            found[str(path.relative_to(folder))] = (kind, path.is_dir() or about.st_size)
    return found
