"""`LaunchOptions`: how many workers, where, and how long they wait (`WorkerSettings`)."""

import dataclasses
import ipaddress
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from ..arguments import path_text
from ..errors import UserError

AUTO: Literal["auto"] = "auto"
FIRST_PORT, LAST_PORT = 1024, 65535
MOST_WORKERS = 1024
_LONGEST_SECONDS = 10_000_000  # TensorFlow counts milliseconds in 32 bits, of which this is less
_DEFAULTS = {"heartbeat_seconds": 10.0, "hang_seconds": 600.0, "start_timeout_seconds": 600.0}
_VARIABLES = {
    "heartbeat_seconds": "KDIST_HEARTBEAT_SECONDS",
    "hang_seconds": "KDIST_HANG_SECONDS",
    "start_timeout_seconds": "KDIST_START_TIMEOUT_SECONDS",
}
_LEAST = {"heartbeat_seconds": 1.0, "hang_seconds": 0.0, "start_timeout_seconds": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """What to start.

    Attributes:
        workers: Workers on this machine; `"auto"` starts one for each GPU, or one without GPUs.
        machines: Names or addresses of all machines, the same list in the same order on each;
            empty for this machine alone.
        machine_rank: Index of this machine in `machines`.
        slurm: Whether Slurm's variables say which machines there are.
        port: Of the first worker of each machine; the next workers take the next ports. Free ones
            by default on a single machine.
        max_restarts: How often all workers are started again after one has failed.
        grace: Seconds from a signal until workers that still run are killed.
        log_dir: Folder for a log file of each worker.
        heartbeat_seconds: A worker that is not heard of for this long is lost; this and the next
            two as in `WorkerSettings`, `None` for its default or the workers' environment.
        hang_seconds: When no step has ended for this long, all print their stacks and end.
        start_timeout: How long a worker waits for all others to start, in seconds.

    Raises:
        UserError: An option is out of range, or does not go with another.
    """

    workers: int | Literal["auto"] = AUTO
    machines: Sequence[str] = ()
    machine_rank: int | None = None
    slurm: bool = False
    port: int | None = None
    max_restarts: int = 0
    grace: float = 30.0
    log_dir: str | None = None
    heartbeat_seconds: float | None = None
    hang_seconds: float | None = None
    start_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.workers != AUTO and not 1 <= self.workers <= MOST_WORKERS:
            raise UserError(
                f"received --workers {self.workers}: pass a number from 1 to {MOST_WORKERS}, or"
                " auto"
            )
        self._check_machines()
        if self.port is not None and not FIRST_PORT <= self.port <= LAST_PORT:
            raise UserError(
                f"received --port {self.port}: pass a number from {FIRST_PORT} to {LAST_PORT}"
            )
        if self.max_restarts < 0:
            raise UserError(f"received --max-restarts {self.max_restarts}: pass 0 or more")
        if self.max_restarts and (self.slurm or len(self.machines) > 1):
            raise UserError(
                "received --max-restarts with several machines, whose launchers do not know of"
                " each other: let the scheduler start all of them again, such as Slurm's --requeue"
            )
        if not (math.isfinite(self.grace) and self.grace >= 0):
            raise UserError(f"received --grace {self.grace}: pass seconds, 0 or more")
        if self.log_dir is not None:
            path_text("--log-dir", self.log_dir)
        for name, value in self.limits.items():
            if value is not None:
                option = f"--{name.removesuffix('_seconds') if 'start' in name else name}"
                check_seconds(name, value, source=option.replace("_", "-"))

    @property
    def limits(self) -> dict[str, float | None]:
        """How long workers wait, by the attributes of `WorkerSettings`."""
        return {
            "heartbeat_seconds": self.heartbeat_seconds,
            "hang_seconds": self.hang_seconds,
            "start_timeout_seconds": self.start_timeout,
        }

    def _check_machines(self) -> None:
        if self.slurm and (self.machines or self.machine_rank is not None):
            raise UserError(
                "received --slurm, which knows the machines: remove --machines and --machine-rank"
            )
        if self.machines and self.machine_rank is None:
            raise UserError(
                f"received --machines {','.join(self.machines)} without --machine-rank: pass the"
                f" index of this machine, from 0 to {len(self.machines) - 1}"
            )
        if self.machine_rank is not None:
            if not self.machines:
                raise UserError(
                    f"received --machine-rank {self.machine_rank} without --machines: pass all"
                    " machines, such as --machines node1,node2"
                )
            if not 0 <= self.machine_rank < len(self.machines):
                raise UserError(
                    f"received --machine-rank {self.machine_rank}, but --machines names"
                    f" {len(self.machines)}: pass 0 to {len(self.machines) - 1}"
                )
        repeated = sorted({name for name in self.machines if self.machines.count(name) > 1})
        if repeated or not all(name.strip() for name in self.machines):
            raise UserError(
                f"received --machines {','.join(self.machines)}: name each machine once"
            )
        for name in self.machines:
            _check_name(name)


def _check_name(machine: str) -> None:
    """Refuse a name with a port, or an address in brackets; colons are those of IPv6."""
    try:
        if ":" in machine:
            ipaddress.IPv6Address(machine)
    except ValueError:
        raise UserError(
            f"received {machine} in --machines: pass names or addresses alone, and the port of the"
            " first worker on each by --port"
        ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How long workers wait.

    Attributes:
        heartbeat_seconds: A worker that is not heard of for this long is lost, and ends all.
        hang_seconds: When no step has ended for this long, all workers print their stacks and end;
            0 for never.
        start_timeout_seconds: How long a worker waits for all others to start.

    Raises:
        UserError: A number is out of range.
    """

    heartbeat_seconds: float = _DEFAULTS["heartbeat_seconds"]
    hang_seconds: float = _DEFAULTS["hang_seconds"]
    start_timeout_seconds: float = _DEFAULTS["start_timeout_seconds"]

    def __post_init__(self) -> None:
        for name in _VARIABLES:
            check_seconds(name, getattr(self, name), source=name)


def check_seconds(name: str, value: object, *, source: str) -> None:
    """Check a number of seconds.

    Args:
        name: The attribute of `WorkerSettings`.
        value: Its value.
        source: What the user calls it, such as an option.

    Raises:
        UserError: It is out of range.
    """
    least = _LEAST[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and least <= value <= _LONGEST_SECONDS:  # type: ignore[arg-type, operator]
        return
    off = ", 0 for never" if least == 0 else ""
    raise UserError(
        f"received {source} {value!r}: pass seconds, from {least:g} to {_LONGEST_SECONDS}{off}"
    )


def variables(**seconds: float | None) -> dict[str, str]:
    """Return the environment variables that give settings to workers.

    Args:
        **seconds: Attributes of `WorkerSettings`; `None` leaves a variable as it is.
    """
    return {_VARIABLES[name]: f"{value!r}" for name, value in seconds.items() if value is not None}


def worker_settings(environment: Mapping[str, str], **given: float | None) -> WorkerSettings:
    """Return the settings of a worker.

    Args:
        environment: Such as `os.environ`, for those that are not given.
        **given: Attributes of `WorkerSettings`; `None` for those that the environment decides.

    Raises:
        UserError: A variable is not a number, or a number is out of range.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name, variable in _VARIABLES.items():
        if name in found or not environment.get(variable):
            continue
        try:
            found[name] = float(environment[variable])
        except ValueError:
            raise UserError(
                f"received {variable}={environment[variable]!r}: expected seconds"
            ) from None
        check_seconds(name, found[name], source=variable)
    return WorkerSettings(**found)
