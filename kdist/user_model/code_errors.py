"""Errors of a user's code, as a line that says where and why."""

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from ..performance.out_of_memory import is_out_of_memory

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
# Lines in which Keras and TensorFlow say where, before they say what.
_PLACES = re.compile(
    r"\s|$|Exception encountered when calling|Could not automatically infer|Graph execution error"
    r"|Detected at node|<stack traces|File \""
)
# What `tf.config` says of threads, memory growth and devices once TensorFlow has started.
_TOO_LATE = "cannot be modified after"
_VARIABLES = (
    "TF_NUM_INTEROP_THREADS, TF_NUM_INTRAOP_THREADS, TF_FORCE_GPU_ALLOW_GROWTH or"
    " CUDA_VISIBLE_DEVICES"
)
_TWO_STRATEGIES = "Mixing different tf.distribute.Strategy objects"
OWN_STRATEGY = (
    "the model is made in the scope of a strategy of its own: remove the strategy from this file,"
    " as kdist makes it"
)
"""The reason where a `build` makes a strategy."""
_LINES = re.compile(r'File "([^"]+)", line (\d+)')


def reason_of(error: BaseException, *, plain: tuple[type[BaseException], ...] = ()) -> str:
    """Explain an exception in one line.

    Args:
        error: The exception.
        plain: Types besides `UserError` whose text needs no name of the type in front of it.
    """
    if is_out_of_memory(error):
        return "out of memory"
    if _TWO_STRATEGIES in str(error):
        return OWN_STRATEGY
    lines = _COLORS.sub("", str(error)).splitlines()
    first = next((line for line in lines if not _PLACES.match(line)), "").strip()
    if isinstance(error, (UserError, *plain)):
        return first
    if isinstance(error, RuntimeError) and _TOO_LATE in first:
        late = f"{first.rstrip('.')}, and kdist has started TensorFlow by then"
        return f"{late}: remove the line, and set {_VARIABLES} instead"
    return f"{type(error).__name__}: {first}"[:300]


@contextlib.contextmanager
def explain_errors_of(*paths: str) -> Iterator[None]:
    """Turn an exception that the user's code raises into a line that says where and why.

    Args:
        *paths: The files of the code; what has not passed through them stays as it is.

    Raises:
        UserError: The block raised an exception.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a script may end with `sys.exit()`
        for path in paths:
            line = _line_of(error, path)
            if line is not None:
                raise UserError(f"{path}, line {line}: {reason_of(error)}") from error
        raise


def _line_of(error: BaseException, path: str) -> int | None:
    own = Path(path).resolve()
    if isinstance(error, SyntaxError) and Path(error.filename or "").resolve() == own:
        return error.lineno  # which has no frame in the file
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if Path(frame.filename).resolve() == own]
    if found:
        return found[-1].lineno
    # What TensorFlow calls, such as a generator, has its lines in the text only.
    told = [int(line) for file, line in _LINES.findall(str(error)) if Path(file).resolve() == own]
    return told[-1] if told else None
