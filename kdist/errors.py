"""The exceptions of kdist, and the lines of a user's program that raised them."""

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class UserError(ValueError):
    """A mistake in the caller's input; the command line prints it in a line and exits with 2.

    The message says the received value, the expected value, and the remedy.

    Attributes:
        is_raised_on_all_workers: Whether all workers of a training raise the error with the same
            message.
    """

    is_raised_on_all_workers = False


class RefusedCheckpointsError(UserError):
    """Every checkpoint is damaged or belongs to a different training: none can be continued."""


class TrainingError(RuntimeError):
    """Training failed; the command line prints the message in a line and exits with 1.

    The message says the cause and the remedy.
    """


class NonFiniteWeightsError(FloatingPointError):
    """The training has diverged.

    Attributes:
        variable: The first variable with a NaN or infinite value.
        epoch: The epoch, counted from 1, in which the value was found.
        step: The step of the epoch, counted from 1, after which the value was found.
    """

    def __init__(self, variable: str, *, epoch: int, step: int) -> None:
        super().__init__(
            f"{variable} is not finite after step {step} of epoch {epoch}, so training stopped;"
            " no checkpoint contains that value, but a resumed training would compute it again:"
            " start in a new folder, with a lower learning rate or clipped gradients"
            " (clipnorm=1.0)"
        )
        self.variable = variable
        self.epoch = epoch
        self.step = step


LOST_WORKER_EXIT_CODE = 75
"""Exit code of a worker that lost a different worker: `EX_TEMPFAIL`, a retry may succeed."""


class LostWorkerError(TrainingError):
    """A different worker has ended, or cannot be reached: a retry may succeed."""


failure_handlers: list[Callable[[BaseException, int], object]] = []
"""Functions that `handle_failure` calls, for example to end this worker."""


def handle_failure(error: BaseException, code: int) -> None:
    """Call the handlers with the error that ends this process. The error is printed before."""
    for handle in failure_handlers:
        handle(error, code)


def message_without_path(error: Exception) -> str:
    """Return the message of an error, without the path of an `OSError`."""
    return str((isinstance(error, OSError) and error.strerror) or error or type(error).__name__)


def first_message_line(error: Exception) -> str:
    """Return the first line of an error's message; without a message, the name of its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_LIBRARIES = tuple(
    str(Path(path).resolve())
    for path in (
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "scripts")),
        sysconfig.get_path("scripts", f"{os.name}_user"),
        os.path.dirname(__file__),
    )
)
_INSTALLED_FOLDERS = {"site-packages", "dist-packages"}
_FILE_AND_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_CHECK_MODULE = "/kdist/tools/check/check_model.py"
# AutoGraph writes its copy of a user's function to a separate file.
_GENERATED_FILES = ("<frozen ", "<string>", "<stdin>", "__autograph_generated_file")


def format_code_line(path: str, number: int) -> str:
    """Return a line of code with its place, such as `my_model.py:31: x = tf.sqrt(y)`."""
    text = linecache.getline(path, number).strip()
    place = f"{_relative_path(path)}:{number}"
    return f"{place}: {text}" if text else place


def cut_line(text: str, columns: int = 80) -> str:
    """Return a line of at most `columns` characters; "…" replaces the end."""
    return text if len(text) <= columns else f"{text[: columns - 2]} …"


def find_last_user_line(places: Iterable[tuple[str, int]]) -> str:
    """Return the last line that belongs to a user's program; an empty string if there is none."""
    in_program = [place for place in places if is_of_user(place[0])]
    return format_code_line(*in_program[-1]) if in_program else ""


def find_raising_user_line(error: BaseException) -> str:
    """Return the innermost line of the user's program that an exception passed; or an empty string.

    Exceptions that TensorFlow raises while a graph runs have the lines only in their text.
    """
    passed = [
        (frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)
    ]
    printed = [(path, int(number)) for path, number in _FILE_AND_LINE.findall(str(error))]
    return find_last_user_line(passed) or find_last_user_line(places_after_check_model(printed))


def places_after_check_model(places: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
    """Return the places that were called by `check_model`: all after its own last place."""
    begins = max(
        (at for at, (path, _) in enumerate(places) if path.endswith(_CHECK_MODULE)), default=-1
    )
    return places[begins + 1 :]


def is_of_user(path: str) -> bool:
    """Whether a file belongs to the user, not to Python, a library or kdist."""
    if (
        not path
        or path.startswith(_GENERATED_FILES)
        or Path(path).name.startswith(_GENERATED_FILES)
        or Path(path).suffix in (".pyx", ".pxd", ".pxi")  # Cython's, without their folder
    ):
        return False
    if not _INSTALLED_FOLDERS.isdisjoint(Path(path).parts):
        return False
    # A folder of kdist may be a symbolic link.
    paths = (Path(path), Path(path).resolve())
    return not any(place.is_relative_to(library) for place in paths for library in _LIBRARIES)


def _relative_path(path: str) -> str:
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):  # outside, or the working directory is gone
        return path
