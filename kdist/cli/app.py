"""The `kdist` command: its subcommands, and a line and an exit code for every error."""

import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from .. import __version__
from ..arguments import check_backend
from ..errors import TrainingError, UserError, handle_failure
from ..fields import field_names
from ..signals import Received
from ..training.config import TrainConfig
from .commands import check, dashboard, devices, doctor, evaluate, report
from .find import app as find_app
from .launch import keep_program, launch
from .options import DEBUG
from .sweep import app as sweep_app
from .train import train
from .tune import tune

_MOST_CHARACTERS = 1000

app = App(
    name="kdist",
    help="Multi-GPU training for Keras: the same model on any number of replicas, only sooner.",
    help_epilogue=f"`{DEBUG}`, with any command, prints the trace of an unexpected error.",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `main` of the package has an exit code for every signal
)
for command in (
    train,
    check,
    evaluate,
    launch,
    sweep_app,
    find_app,
    tune,
    report,
    dashboard,
    devices,
    doctor,
):
    app.command(command)
app.register_install_completion_command()


def main(received: Received) -> None:
    """Run the command line; print an error as a line, and exit with 2 for a user's mistake.

    Args:
        received: The signals that `raise_signals` has yielded.
    """
    # TensorFlow's Python logger reports every reduction at level INFO.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    arguments, debug = take_debug(keep_program(sys.argv[1:]))
    failed: Exception | None = None
    try:
        code = app(arguments, exit_on_error=False, print_error=False) or 0
        print(end="", flush=True)  # flushed here, to catch a closed pipe or a full disk
    except (UserError, CycloptsError) as error:
        print(f"kdist: error: {one_line(_in_words(error))}", file=sys.stderr)
        code, failed = 2, error
    except TrainingError as error:
        print(f"kdist: error: {one_line(str(error))}", file=sys.stderr)
        code, failed = 1, error
    except BrokenPipeError:  # `kdist … | head`
        end_output()
        code = 1
    except Exception as error:
        end_output()
        # An interrupted import of a library may end in any exception.
        if debug or received.first is not None:
            raise
        code, failed = 1, error
        try:
            check_backend(os.environ.get("KERAS_BACKEND") or "tensorflow")  # a possible cause
            print(f"kdist: error: {unexpected(error)}", file=sys.stderr)
        except UserError as cause:
            print(f"kdist: error: {one_line(cause)}", file=sys.stderr)
            code = 2
    if failed is not None:
        handle_failure(failed, code)
    sys.exit(code)


def _in_words(error: Exception) -> str:
    if not isinstance(error, CycloptsError):
        return str(error)
    command = " ".join(["kdist", *(error.command_chain or ())])
    unused = error.unused_tokens or []
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(unused)
        return f"{command} has no use for {extra}; options begin with --: see {command} --help"
    if isinstance(error, UnknownCommandError) and "".join(unused[:1]).startswith("-"):
        return f"{unused[0]}: options follow a command, see {command} --help"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        what = f"{error.keyword} needs a value" if error.keyword else ""
        return f"{what or f'{command} needs {error.argument.name}'}: see {command} --help"
    if not isinstance(error, UnknownOptionError):
        return str(error)
    option = error.token.keyword or error.token.value  # a value if the command takes a model
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    if name not in field_names(TrainConfig):
        return str(error)
    return f"{option} is not for {command}, which decides it: see {command} --help"


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
