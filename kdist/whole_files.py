"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that whoever reads it finds the old or the new content, never a part.

    Args:
        path: The file, whose folder exists.
        content: Text is written as UTF-8.

    Raises:
        OSError: It cannot be written; what was there is left as it was.
    """
    # Several processes may write the same file, each its own part.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
