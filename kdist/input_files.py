"""Files that a user names, and files that may be damaged: read whole, or refused in a line."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 2**24
"""16 MiB, a history of 100,000 epochs: what is larger, or never ends, is some other file."""

# Settings and results nest three levels deep. What nests deeper than Python's stack cannot even be
# printed in an error message.
_MOST_LEVELS = 20
_INT64 = 2**63


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, without a byte order mark.

    Args:
        path: A regular file, or a pipe such as a shell's `<(command)`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is a device or the like, larger than `MOST_BYTES`, or not in UTF-8; or no
            file can have the path.
    """
    kind = Path(path).stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(21, "Is a directory", str(path))
    if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
        raise ValueError("it is not a regular file")
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    return content.decode("utf-8-sig")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, as `json.loads` does.

    Raises:
        ValueError: It is no JSON, or `check_plain` refuses it.
    """
    try:
        return check_plain(json.loads(text))
    except RecursionError as error:
        raise _too_deep() from error


def check_plain(value: Any) -> Any:
    """Return the value that was read from JSON or TOML, if it can be printed.

    Raises:
        ValueError: It is nested too deeply, or has an integer that 64 bits cannot hold, which no
            program has to read (TOML 1.0, "Integer"; RFC 8259, section 6).
    """
    level = [value]
    for _ in range(_MOST_LEVELS):
        if any(isinstance(one, int) and not -_INT64 <= one < _INT64 for one in level):
            raise ValueError("an integer in it has more than 64 bits")
        level = [part for one in level for part in _parts(one)]
        if not level:
            return value
    raise _too_deep()


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
