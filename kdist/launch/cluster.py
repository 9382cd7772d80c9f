"""The cluster as TensorFlow reads it from `TF_CONFIG`, and a worker's place in it."""

import json
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .machines import LOOPBACK, Machines
from .options import LAST_PORT

RANK, LOCAL_RANK, WORLD_SIZE = "KDIST_RANK", "KDIST_LOCAL_RANK", "KDIST_WORLD_SIZE"
RESTART_COUNT = "KDIST_RESTART_COUNT"
NOTES = "KDIST_LAUNCH_NOTES"
"""A folder that the workers of all restarts have, and nobody else."""
_FIRST_OWN_PORT = 20_000  # above those of most services
_PORTS_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def worker_addresses(machines: Machines, *, workers: int) -> list[str]:
    """Return the addresses of all workers, by rank: those of the first machine first.

    Args:
        machines: Without a port each worker gets a free one.
        workers: On each machine.

    Raises:
        UserError: There are not as many ports.
    """
    if machines.port is None:
        return [f"{LOOPBACK}:{port}" for port in free_ports(workers)]
    if machines.port + workers - 1 > LAST_PORT:
        raise UserError(
            f"{workers} workers from port {machines.port} on go beyond {LAST_PORT}: pass a lower"
            " --port"
        )
    return [
        f"{f'[{name}]' if ':' in name else name}:{machines.port + local}"
        for name in machines.names
        for local in range(workers)
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
