"""`Machines`: which machines train together, and which of them this one is."""

import dataclasses
import subprocess
from collections.abc import Callable, Mapping, Sequence

from ..errors import UserError
from .options import LaunchOptions

# The number of a node is that among the nodes of the job step, which may be some of the job's.
_STEP_NODES, _NODES, _NODE = "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODEID"
# Out of those that Linux gives to no client; as many for each job as a node has workers.
_SLURM_PORTS = range(12000, 32000, 20)
_STEPS_OF_A_JOB = 61  # no divisor of the number of blocks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a training.

    Attributes:
        names: Names or addresses, in the order of their ranks.
        rank: Index of this machine.
        port: Of the first worker on each machine; `None` for any that is free.
    """

    names: tuple[str, ...]
    rank: int = 0
    port: int | None = None


# A worker that listens on the loopback alone is not reached from other machines.
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29400


def find_machines(options: LaunchOptions, environment: Mapping[str, str]) -> Machines:
    """Return the machines that the options name.

    Args:
        options: Of the launch.
        environment: Such as `os.environ`, for Slurm's variables.

    Raises:
        UserError: Slurm's variables are not there.
    """
    if options.slurm:
        return slurm_machines(environment, port=options.port)
    if len(options.machines) > 1:
        return Machines(
            names=tuple(options.machines),
            rank=options.machine_rank or 0,
            port=options.port or DEFAULT_PORT,
        )
    return Machines(names=(LOOPBACK,), port=options.port)


def slurm_machines(
    environment: Mapping[str, str],
    *,
    port: int | None = None,
    host_names: Callable[[str], Sequence[str]] | None = None,
) -> Machines:
    """Return the machines of a Slurm job step, as `srun` starts one launcher on each.

    Args:
        environment: With Slurm's variables.
        port: Of the first worker on each machine; by default one that depends on the job.
        host_names: Expands Slurm's list of nodes, such as `node[1-3]`; `scontrol` by default.

    Raises:
        UserError: This is no Slurm job, or a node got several launchers.
    """
    nodes = environment.get(_STEP_NODES) or environment.get(_NODES)
    found = {_NODES: nodes, _NODE: environment.get(_NODE)}
    missing = [name for name, value in found.items() if value is None]
    if nodes is None or missing:
        raise UserError(
            f"received --slurm, but {' and '.join(missing)} is not set: start it in a Slurm job,"
            " by srun --ntasks-per-node=1 kdist launch --slurm …"
        )
    if int(environment.get("SLURM_LOCALID", "0")):
        raise UserError(
            "Slurm started several launchers on one node: pass srun --ntasks-per-node=1, the"
            " launcher starts the workers"
        )
    names = tuple((host_names or _scontrol)(nodes))
    return Machines(
        names=names if len(names) > 1 else (LOOPBACK,),
        rank=int(environment[_NODE]) if len(names) > 1 else 0,
        port=port or (slurm_port(environment) if len(names) > 1 else None),
    )


def slurm_port(environment: Mapping[str, str]) -> int:
    """Return the first port of a Slurm job step on each of its nodes, 20 of which are its own.

    Of the jobs that share a node, those whose numbers are less than 1000 apart have other ports;
    so have up to 61 steps of a job that run at once.

    Args:
        environment: With Slurm's variables.

    Example:
        >>> slurm_port({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2"})
        13260
    """
    job, step = (int(environment.get(name) or 0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return _SLURM_PORTS[(job * _STEPS_OF_A_JOB + step % _STEPS_OF_A_JOB) % len(_SLURM_PORTS)]


def _scontrol(nodes: str) -> list[str]:
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own list of nodes
            ["scontrol", "show", "hostnames", nodes],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"cannot expand Slurm's nodes {nodes!r} ({error}): is scontrol on the PATH?"
        ) from error
    return done.stdout.split()
