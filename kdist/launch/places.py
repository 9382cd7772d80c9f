"""Addresses of the workers of this machine, and the variables that give each its place."""

import json
import random
import socket
from collections.abc import Sequence
from pathlib import Path

RANK, LOCAL_RANK, WORLD_SIZE = "KDIST_RANK", "KDIST_LOCAL_RANK", "KDIST_WORLD_SIZE"
RESTART_COUNT = "KDIST_RESTART_COUNT"
NOTES = "KDIST_LAUNCH_NOTES"
"""A folder that the workers of all restarts have, and nobody else."""

LOOPBACK = "127.0.0.1"
_FIRST_OWN_PORT = 20_000  # above those of most services
_PORTS_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def worker_environment(addresses: Sequence[str], *, rank: int, restarts: int) -> dict[str, str]:
    """Return the variables that give a worker of this machine its place.

    Args:
        addresses: Addresses of all workers.
        rank: Index of the worker among them.
        restarts: How often the workers were started before.
    """
    task = {"type": "worker", "index": rank}
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task}),
        RANK: str(rank),
        LOCAL_RANK: str(rank),
        WORLD_SIZE: str(len(addresses)),
        RESTART_COUNT: str(restarts),
    }


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which nobody listens.

    Workers listen seconds later. Meanwhile connections get ports of the system's range, so these
    are below it.
    """
    draw = random.SystemRandom()  # launches that begin at one time take different ones
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            attempt = socket.socket()
            sockets.append(attempt)
            try:
                port = draw.randrange(_FIRST_OWN_PORT, _first_port_of_connections())
                attempt.bind((LOOPBACK, port))
            except (OSError, ValueError):  # in use, or there are none below the range
                attempt.bind((LOOPBACK, 0))
        return [attempt.getsockname()[1] for attempt in sockets]
    finally:
        for attempt in sockets:
            attempt.close()


def _first_port_of_connections() -> int:
    try:
        return int(_PORTS_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OWN_PORT  # none below it
