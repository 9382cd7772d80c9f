"""Which machines train together (`--machines`, `--slurm`), at which addresses; worker numbers."""

import dataclasses
import json
import random
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from . import child
from .launch_options import LAST_PORT, LaunchOptions

RANK, LOCAL_RANK, WORLD_SIZE = "KDIST_RANK", "KDIST_LOCAL_RANK", "KDIST_WORLD_SIZE"
RESTART_COUNT = "KDIST_RESTART_COUNT"
NOTES = "KDIST_LAUNCH_NOTES"
"""A folder that the workers of all restarts have, and nobody else."""

# A worker that listens on the loopback alone is not reached from other machines.
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29400
_FIRST_OWN_PORT = 20_000  # above those of most services
_PORTS_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The number of a node is that among the nodes of the job step, which may be some of the job's.
_STEP_NODES, _NODES, _NODE = "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODEID"
# Out of those that Linux gives to no client; as many for each job as a node has workers.
_SLURM_PORTS = range(12000, 32000, 20)
_STEPS_OF_A_JOB = 61  # no divisor of the number of blocks
_NO_SCONTROL = "cannot expand Slurm's nodes {nodes!r} ({why}): is scontrol on the PATH?"


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
    if options.machines is not None and len(options.machines) > 1:
        return Machines(
            names=tuple(options.machines),
            rank=options.machine_rank or 0,
            port=options.port or DEFAULT_PORT,
        )
    return Machines(names=(LOOPBACK,), port=options.port)


def slurm_machines(environment: Mapping[str, str], *, port: int | None = None) -> Machines:
    """Return the machines of a Slurm job step, as `srun` starts one launcher on each.

    Args:
        environment: With Slurm's variables.
        port: Of the first worker on each machine; by default one that depends on the job.

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
    names = tuple(_host_names(nodes))
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


def _host_names(nodes: str) -> list[str]:
    """Expand Slurm's list of nodes, such as `node[1-3]`."""
    try:
        done = child.run(["scontrol", "show", "hostnames", nodes])
    except OSError as error:
        raise UserError(_NO_SCONTROL.format(nodes=nodes, why=error)) from error
    if done.code:
        raise UserError(_NO_SCONTROL.format(nodes=nodes, why=done.verdict.line))
    return done.output.split()


def worker_addresses(machines: Machines, workers: Sequence[int]) -> list[str]:
    """Return the addresses of all workers, by rank: those of the first machine first.

    Args:
        machines: Without a port each worker gets a free one.
        workers: How many each machine has.

    Raises:
        UserError: There are not as many ports.
    """
    if machines.port is None:
        return [f"{LOOPBACK}:{port}" for port in free_ports(sum(workers))]
    if machines.port + max(workers) - 1 > LAST_PORT:
        raise UserError(
            f"{max(workers)} workers from port {machines.port} on go beyond {LAST_PORT}: pass a"
            " lower --port"
        )
    return [
        f"{f'[{name}]' if ':' in name else name}:{machines.port + local}"
        for name, count in zip(machines.names, workers, strict=True)
        for local in range(count)
    ]


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which nobody listens.

    Workers listen seconds later. Meanwhile connections get ports of the system's range, so these
    are below it.
    """
    draw = random.SystemRandom()  # launches that begin at one time take different ones
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            one = socket.socket()
            sockets.append(one)
            try:
                one.bind((LOOPBACK, draw.randrange(_FIRST_OWN_PORT, _first_port_of_connections())))
            except (OSError, ValueError):  # in use, or there are none below the range
                one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _first_port_of_connections() -> int:
    try:
        return int(_PORTS_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OWN_PORT  # none below it


def check_port_is_free(port: int) -> None:
    """Check that a worker on this machine can listen on a port.

    Raises:
        UserError: It is in use.
    """
    try:
        bound_port("", port)
    except OSError as error:
        raise UserError(
            f"cannot use port {port} ({error.strerror}): another run may use it; pass another"
            " --port, the same on all machines"
        ) from error


def bound_port(host: str, port: int) -> int:
    """Return a port on which a process can listen now: `port`, or any that is free if it is 0.

    Raises:
        OSError: It is in use.
        OverflowError: There is no such port.
    """
    with socket.socket() as attempt:
        # Connections of a process that was killed linger for a minute; nobody listens on them.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind((host, port))
        number: int = attempt.getsockname()[1]
        return number


def worker_environment(
    addresses: Sequence[str], *, rank: int, local_rank: int, restarts: int
) -> dict[str, str]:
    """Return the variables that give a worker its place.

    Args:
        addresses: Of all workers.
        rank: Of this worker among all.
        local_rank: Of this worker among those of its machine.
        restarts: How often the workers were started before.
    """
    task = {"type": "worker", "index": rank}
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task}),
        RANK: str(rank),
        LOCAL_RANK: str(local_rank),
        WORLD_SIZE: str(len(addresses)),
        RESTART_COUNT: str(restarts),
    }
