"""The `kdist` command: its subcommands; every error becomes one line and an exit code."""

import logging
import os
import sys
from typing import TYPE_CHECKING

from ..arguments import check_backend
from ..errors import TrainingError, UserError, handle_failure
from ..signals import raise_signals, signal_of
from ..strategies.prepare_tensorflow import prepare_process

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

_MOST_CHARACTERS = 1000


def main() -> None:
    """Run a command, print an error as a line, and exit with the command's exit code.

    The code is 2 for a user's mistake, 1 for a training that failed, and 128 + N after the signal N
    (Ctrl-C, SIGTERM or SIGHUP).
    """
    prepare_process()
    with raise_signals() as received:
        failed: BaseException
        try:
            sys.exit(run_command(sys.argv[1:]))
        except KeyboardInterrupt as error:
            number, failed = signal_of(error), error
        except Exception as error:
            # A signal during an import may surface as any exception.
            if received.first is None:
                raise
            number, failed = received.first, error
    print(f"kdist: interrupted by {number.name}", file=sys.stderr)
    handle_failure(failed, 128 + number)
    sys.exit(128 + number)


def run_command(arguments: list[str]) -> int:
    """Run a command, print its error as a line, and return its exit code."""
    from cyclopts import CycloptsError

    from .launch import separate_program_arguments

    # TensorFlow's Python logger reports every reduction at level INFO.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        words = separate_program_arguments(arguments)
        code = make_app()(words, exit_on_error=False, print_error=False) or 0
        print(end="", flush=True)  # flushed here, to catch a closed pipe
    except UserError as error:
        return _print_error(error, 2)
    except CycloptsError as error:
        return _print_error(_explain(error), 2)
    except TrainingError as error:
        return _print_error(error, 1)
    except BrokenPipeError:  # `kdist … | head`
        _drop_output()
        return 1
    except Exception:
        try:
            # A backend that kdist does not support may have caused the exception.
            check_backend(os.environ.get("KERAS_BACKEND") or "tensorflow")
        except UserError as cause:
            return _print_error(cause, 2)
        raise
    return int(code)


def make_app() -> "App":
    """Create the parser of all commands."""
    from cyclopts import App

    from .. import __version__
    from . import find, small_commands, sweep
    from .launch import launch
    from .train import train
    from .tune import tune

    app = App(
        name="kdist",
        help="Multi-GPU training for Keras: the same model on any number of replicas, only sooner.",
        version=__version__,
        result_action="return_value",
        suppress_keyboard_interrupt=False,  # `main` has an exit code for every signal
    )
    for command in (
        train,
        small_commands.check,
        small_commands.evaluate,
        launch,
        sweep.app,
        find.app,
        tune,
        small_commands.report,
        small_commands.dashboard,
        small_commands.devices,
        small_commands.doctor,
    ):
        app.command(command)
    app.register_install_completion_command()
    return app


def _explain(error: "CycloptsError") -> Exception:
    """Return an error of the parser, with a remedy for arguments that are too many or missing."""
    from cyclopts import MissingArgumentError, UnusedCliTokensError

    command = " ".join(("kdist", *(error.command_chain or ())))
    if isinstance(error, UnusedCliTokensError):
        return UserError(
            f"{command} does not take the argument {' '.join(error.unused_tokens or ())}:"
            f" {command} --help lists the arguments"
        )
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument and argument.parameter.help:
        return UserError(f"{error} {argument.name}: {argument.parameter.help}")
    return error


def _print_error(error: Exception, code: int) -> int:
    print(f"kdist: error: {one_line(error)}", file=sys.stderr)
    handle_failure(error, code)
    return code


def one_line(text: object) -> str:
    """Return a text as a line for a terminal, with escapes for control characters.

    The middle of a long text is left out.
    """
    words = " ".join(str(text).split())
    if len(words) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        words = f"{words[:half]} … {words[-half:]}"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in words
    )


def _drop_output() -> None:
    """Redirect a closed standard output to /dev/null: Python would fail to flush it at exit."""
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
