"""What the command line says where no message was written: a line, and the trace in a file."""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

DEBUG = "--debug"
"""Prints the trace of an unexpected error; may stand anywhere on the command line."""

_MOST_CHARACTERS = 1000


def take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Take `--debug` out of the arguments, unless it stands after `--`.

    Returns:
        The other arguments, and whether it was there.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != DEBUG]
    return [*kept, *arguments[end:]], len(kept) < end


def one_line(text: object) -> str:
    """Text on one line of a terminal: control characters are escaped, and the middle cut out."""
    words = " ".join(str(text).split())
    if len(words) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        words = f"{words[:half]} … {words[-half:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


def unexpected(error: Exception) -> str:
    """Write the trace of an error into a file; if no file can be written, to standard error.

    Returns:
        The line about the error.
    """
    what = f"unexpected {type(error).__name__}: {one_line(error) or 'no message'}"
    trace = "".join(traceback.format_exception(error))
    try:
        handle, path = tempfile.mkstemp(prefix="kdist-error-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{' '.join(map(ascii, sys.argv))}\n{trace}")
    except OSError:
        print(trace, file=sys.stderr)
        return what
    return f"{what}; the trace is in {path}, {DEBUG} prints it"


def end_output() -> None:
    """Write what is left of standard output, or drop it where nothing can be written any more.

    Python would try again when it ends, print that it cannot, and exit with 120.
    """
    try:
        print(end="", flush=True)
    except OSError:
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
