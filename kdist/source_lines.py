"""Lines of a program, with their places, for messages to its author."""

import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

_LIBRARIES = tuple(
    {
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    | {str(Path(__file__).resolve().parent)}
)
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_CHECK = "/kdist/check/training.py"  # the lines before are of the program that has called it
# AutoGraph's copy of a user's function has a file of its own.
_GENERATED = ("<frozen ", "<string>", "<stdin>", "__autograph_generated_file")


def line_at(path: str, number: int) -> str:
    """Return a line with its place, such as `my_model.py:31: x = tf.sqrt(y)`.

    Args:
        path: Its file; shown relative to the working directory, if it is there.
        number: Its number, from 1.
    """
    text = linecache.getline(path, number).strip()
    place = f"{_relative(path)}:{number}"
    return f"{place}: {text}" if text else place


def user_line(places: Iterable[tuple[str, int]]) -> str:
    """Return the last of these lines that is of a user's program; empty if there is none.

    Args:
        places: Files and numbers of lines, the outermost first.
    """
    own = [place for place in places if is_of_user(place[0])]
    return line_at(*own[-1]) if own else ""


def line_of_error(error: BaseException) -> str:
    """Return the innermost line of the user's program that an exception has passed; or nothing.

    Those that TensorFlow raises while a graph runs have the lines in their text only.
    """
    passed = [(one.filename, one.lineno or 0) for one in traceback.extract_tb(error.__traceback__)]
    told = [(path, int(number)) for path, number in _PLACE.findall(str(error))]
    begins = max((at for at, (path, _) in enumerate(told) if path.endswith(_CHECK)), default=-1)
    return user_line(passed) or user_line(told[begins + 1 :])


def is_of_user(path: str) -> bool:
    """Whether a file is of the user, not of Python, a library or kdist."""
    if not path or path.startswith(_GENERATED) or Path(path).name.startswith(_GENERATED):
        return False
    return not str(Path(path).resolve()).startswith(_LIBRARIES)


def _relative(path: str) -> str:
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):  # it is elsewhere, or the working directory is gone
        return path
