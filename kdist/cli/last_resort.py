"""Unexpected errors of the command line: a line on the terminal, and the trace in a file."""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

DEBUG = "--debug"
"""Option that prints the trace of an unexpected error, at any place of the command line."""

_MOST_CHARACTERS = 1000


def take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Remove `--debug` from the arguments, unless it stands after `--`.

    Returns:
        The remaining arguments, and whether `--debug` was removed.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != DEBUG]
    return [*kept, *arguments[end:]], len(kept) < end


def one_line(text: object) -> str:
    """Return text for a line of a terminal, with escapes for control characters.

    The middle of a long text is cut out.
    """
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
    """Flush standard output, or drop the rest of the output if it cannot be written.

    Otherwise Python would try again at its end, print an error, and exit with 120.
    """
    try:
        print(end="", flush=True)
    except OSError:
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
