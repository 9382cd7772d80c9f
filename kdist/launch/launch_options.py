"""`LaunchOptions`: how many workers, where, and how long they wait (`WorkerSettings`)."""

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..fields import Folder, check_fields, fields_of

AUTO: Literal["auto"] = "auto"
FIRST_PORT, LAST_PORT = 1024, 65535
MOST_WORKERS = 1024

_LONGEST = 999_999  # eleven days; TensorFlow counts milliseconds in 32 bits
_Seconds = Annotated[float, Ge(0), Le(_LONGEST)]
_Wait = Annotated[float, Ge(1), Le(_LONGEST)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Launch.

    Attributes:
        workers: Workers on each machine; `None` starts one for each GPU, or one without GPUs.
        machines: All machines, such as node1,node2: the same list in the same order on each; by
            default this machine alone.
        machine_rank: Index of this machine among them, from 0.
        slurm: Take the machines from Slurm: srun --ntasks-per-node=1.
        port: Port of the first worker on each machine, the next workers take the next ports; by
            default 29400, on a single machine a free port, with Slurm one that depends on the job.
        max_restarts: How often to restart all workers after one has failed.
        elastic: When workers are lost, start those that are left again at once, with checkpoints
            at the step after the newest: workers that are killed or stand still, machines that
            cannot be reached. The launchers of several machines meet at the first one's `port`; the
            workers listen at the ports behind it.
        grace: Seconds after a signal until workers still running are killed.
        log_dir: Folder for the workers' log files.
        heartbeat_seconds: A worker not heard from for this long is lost, and all end; 10 by
            default, like the next two unless the workers' environment has others.
        hang_seconds: When no step has ended for this long, all workers print their stacks and who
            is behind, and end; 600 by default, 0 for never.
        start_timeout: Seconds that a worker waits for the others to start; 600 by default.

    Raises:
        UserError: An option is out of range, or does not go with another.
    """

    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = None
    machines: Sequence[str] | None = None
    machine_rank: Annotated[int, Ge(0)] | None = None
    slurm: bool = False
    port: Annotated[int, Ge(FIRST_PORT), Le(LAST_PORT)] | None = None
    max_restarts: Annotated[int, Ge(0)] = 0
    elastic: bool = False
    grace: _Seconds = 30.0
    log_dir: Folder | None = None
    heartbeat_seconds: _Wait | None = None
    hang_seconds: _Seconds | None = None
    start_timeout: _Wait | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_machines(self.machines or ())
        has_several = self.slurm or len(self.machines or ()) > 1
        if self.max_restarts and has_several and not self.elastic:
            raise UserError(
                "received --max-restarts with several machines, whose launchers only know of each"
                " other with --elastic: add it, or let the scheduler start all of them again, such"
                " as Slurm's --requeue"
            )

    @property
    def limits(self) -> dict[str, float | None]:
        """How long workers wait, by the attributes of `WorkerSettings`."""
        return {
            "heartbeat_seconds": self.heartbeat_seconds,
            "hang_seconds": self.hang_seconds,
            "start_timeout_seconds": self.start_timeout,
        }

    def _check_machines(self, machines: Sequence[str]) -> None:
        if self.slurm and (machines or self.machine_rank is not None):
            raise UserError(
                "received --slurm, which knows the machines: remove --machines and --machine-rank"
            )
        if machines and self.machine_rank is None:
            raise UserError(
                f"received --machines {','.join(machines)} without --machine-rank: pass the"
                f" index of this machine, from 0 to {len(machines) - 1}"
            )
        if self.machine_rank is not None:
            if not machines:
                raise UserError(
                    f"received --machine-rank {self.machine_rank} without --machines: pass all"
                    " machines, such as --machines node1,node2"
                )
            if self.machine_rank >= len(machines):
                raise UserError(
                    f"received --machine-rank {self.machine_rank}, but --machines names"
                    f" {len(machines)}: pass 0 to {len(machines) - 1}"
                )
        if not all(name.strip() for name in machines):
            raise UserError(f"received machines {','.join(machines)}: name each machine")
        for name in machines:
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

    heartbeat_seconds: _Wait = 10.0
    hang_seconds: _Seconds = 600.0
    start_timeout_seconds: _Wait = 600.0

    def __post_init__(self) -> None:
        check_fields(self)


_VARIABLES = {
    field.name: (f"KDIST_{field.name.upper()}", field) for field in fields_of(WorkerSettings)
}


def variables(**seconds: float | None) -> dict[str, str]:
    """Return the environment variables that give settings to workers.

    Args:
        **seconds: Attributes of `WorkerSettings`; `None` leaves a variable as it is.
    """
    return {
        _VARIABLES[name][0]: f"{value!r}" for name, value in seconds.items() if value is not None
    }


def worker_settings(environment: Mapping[str, str], **given: float | None) -> WorkerSettings:
    """Return the settings of a worker.

    Args:
        environment: Such as `os.environ`, for those that are not given.
        **given: Attributes of `WorkerSettings`; `None` for those that the environment decides.

    Raises:
        UserError: A variable is not a number, or a number is out of range.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name, (variable, field) in _VARIABLES.items():
        text = environment.get(variable)
        if name in found or not text:
            continue
        try:
            found[name] = field.check(float(text))
        except (ValueError, UserError):
            raise UserError(
                f"received {variable}={text!r}: expected seconds, {field.bounds}"
            ) from None
    return WorkerSettings(**found)
