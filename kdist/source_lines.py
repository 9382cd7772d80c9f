"""Lines of a program, with their places, for messages to its author."""

import linecache
from pathlib import Path


def line_at(path: str, number: int) -> str:
    """Return a line with its place, such as `my_model.py:31: x = tf.sqrt(y)`.

    Args:
        path: Its file; shown relative to the working directory, if it is there.
        number: Its number, from 1.
    """
    text = linecache.getline(path, number).strip()
    place = f"{_relative(path)}:{number}"
    return f"{place}: {text}" if text else place


def _relative(path: str) -> str:
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):  # it is elsewhere, or the working directory is gone
        return path
