"""`kdist sweep` and `kdist tune` under `kdist launch`: they start their workers themselves."""

import dataclasses
import os
from collections.abc import Sequence

from ..errors import UserError
from ..launch.machines import find_machines
from ..launch.options import LaunchOptions
from ..launch.shares import count_workers, visible_gpus
from ..launch.worker_settings import variables

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
    names = ["port", "max_restarts", "grace", "log_dir"]
    if command == "tune":  # no trial has several workers
        names += ["heartbeat_seconds", "hang_seconds", "start_timeout"]
    for name in names:
        value = getattr(options, name)
        if value != getattr(default, name):
            raise UserError(
                f"received --{name.replace('_', '-')} {value}, but kdist {command} starts and ends"
                " its processes itself: remove it"
            )
