"""`kdist launch`, and sweeps and searches under it, which start their workers themselves."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import UserError
from ..fields import fields_of
from ..launch.cluster import find_machines
from ..launch.launch_options import AUTO, LaunchOptions, variables
from ..launch.shares import count_workers, visible_gpus
from .last_resort import DEBUG, take_debug
from .options import given, options_of, takes

_WORKERS = "--workers"
_SEVERAL_MACHINES = {
    "sweep": "whose points train on one machine: run kdist sweep --workers N on one of them, or"
    " kdist launch -m kdist train on all of them for each setting",
    "tune": "whose trials train on one machine each: run kdist tune on all of them, with"
    " KERASTUNER_TUNER_ID, KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT set",
}


@dataclasses.dataclass(frozen=True)
class CommandWithWorkers:
    """A command of kdist that is to be run in place of `kdist launch`.

    Attributes:
        arguments: Of `kdist`.
    """

    arguments: tuple[str, ...]


def starts_workers_itself(program: Sequence[str]) -> bool:
    """Whether a program of `kdist launch` is a sweep or search.

    Args:
        program: A script or `-m` and a module, and its arguments.
    """
    is_kdist = tuple(program[:2]) == ("-m", "kdist")
    return is_kdist and len(program) > 2 and program[2] in _SEVERAL_MACHINES


def command_with_workers(program: Sequence[str], options: LaunchOptions) -> CommandWithWorkers:
    """Return the sweep or search that was to be launched, as it starts its workers itself.

    Args:
        program: See `starts_workers_itself`.
        options: Of the launch.

    Raises:
        UserError: An option has no effect on it, or there are several machines.
    """
    command, *rest = program[2:]
    kind = rest[:1] if command == "sweep" else []
    if command == "sweep" and (not kind or kind[0].startswith("-")):
        return CommandWithWorkers((command, *rest))  # as for its help
    if any(word.partition("=")[0] == _WORKERS for word in rest):
        raise UserError(
            f"received {_WORKERS} both before and after kdist {command}: remove one of them"
        )
    if len(find_machines(options, os.environ).names) > 1:
        raise UserError(
            f"received several machines and kdist {command}, {_SEVERAL_MACHINES[command]}"
        )
    _refuse_idle(command, options)
    # Workers of its points find them there.
    os.environ.update(variables(**options.limits))
    workers = count_workers(options.workers, visible_gpus(os.environ))
    return CommandWithWorkers((command, *kind, _WORKERS, f"{workers}", *rest[len(kind) :]))


def _refuse_idle(command: str, options: LaunchOptions) -> None:
    default = LaunchOptions()
    names = ["port", "max_restarts", "elastic", "grace", "log_dir"]
    if command == "tune":  # no trial has several workers
        names += ["heartbeat_seconds", "hang_seconds", "start_timeout"]
    for name in names:
        value = getattr(options, name)
        if value != getattr(default, name):
            raise UserError(
                f"received --{name.replace('_', '-')} {value}, but kdist {command} starts and ends"
                " its processes itself: remove it"
            )


_OF_OPTIONS = [field.name for field in fields_of(LaunchOptions) if field.kind is bool]
# The options that take no value.
_FLAGS = {"--test", "--help", "-h", DEBUG}.union(
    *({f"--{name}", f"--no-{name}"} for name in _OF_OPTIONS)
)
_TEST = ("-m", "kdist.training.worker_check")


@takes(options=options_of(LaunchOptions, without={"workers"}))
def launch(
    *program: Annotated[str, Parameter(help="A script and its arguments, or -m and a module.")],
    workers: Annotated[
        str, Parameter(help="Workers on each machine; auto: one for each GPU, one without GPUs.")
    ] = AUTO,
    test: Annotated[
        bool,
        Parameter(
            help="Run no program, but check the workers: do they reach each other, how fast, and"
            " do they train the same model?",
            negative=(),
        ),
    ] = False,
    options: Any = None,
) -> int | CommandWithWorkers:
    """Run a program on several workers, on this machine and others."""
    if test and program:
        raise UserError(
            f"received --test and the program {program[0]}: remove one of them; options of the"
            " program stand after it"
        )
    asked = LaunchOptions(workers=_count(workers), **given(options))
    if starts_workers_itself(program):
        return command_with_workers(program, asked)
    from ..launch.launcher import launch as run

    return run(_TEST if test else program, asked)


def keep_program(arguments: Sequence[str]) -> list[str]:
    """Put `--` in front of the program of `kdist launch`, whose options are its own.

    Args:
        arguments: Of `kdist`.
    """
    if not arguments or arguments[0] != "launch":
        return list(arguments)
    index = 1
    while index < len(arguments) and arguments[index].startswith("--"):
        option = arguments[index]
        if option == "--":
            return list(arguments)
        index += 1 if "=" in option or option in _FLAGS else 2
    if arguments[index : index + 1] in ([], ["-h"]):
        return list(arguments)
    program = list(arguments[index:])
    if not starts_workers_itself(program):
        return [*arguments[:index], "--", *program]
    # It runs in this process.
    program, debug = take_debug(program)
    return [*arguments[:index], *([DEBUG] if debug else []), "--", *program]


def _count(workers: str) -> int | None:
    if workers == AUTO:
        return None
    try:
        return int(workers)
    except ValueError:
        raise UserError(f"received --workers {workers}: pass a number, or auto") from None
