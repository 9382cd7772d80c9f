"""Addresses of this machine's workers, and the environment variables of each worker's place."""

import json
import random
import socket
from collections.abc import Sequence
from pathlib import Path

RANK, LOCAL_RANK, WORLD_SIZE = "KDIST_RANK", "KDIST_LOCAL_RANK", "KDIST_WORLD_SIZE"
RESTART_COUNT = "KDIST_RESTART_COUNT"
NOTES = "KDIST_LAUNCH_NOTES"
"""Variable with the path of a folder that only the workers of a launch share, in all restarts."""

LOOPBACK = "127.0.0.1"
_FIRST_OWN_PORT = 20_000  # above the ports of most services
_PORTS_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def worker_environment(addresses: Sequence[str], *, rank: int, restarts: int) -> dict[str, str]:
    """Return the environment variables of the place of a worker on this machine.

    Args:
        addresses: Addresses of all workers.
        rank: Index of the worker among all workers.
        restarts: Number of earlier starts of the workers.
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
    """Return free ports of the loopback interface.

    Workers listen on the ports only seconds later. Meanwhile the system gives connections ports of
    its own range, so free ports below this range are preferred.
    """
    draw = random.SystemRandom()  # simultaneous launches draw different ports
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            attempt = socket.socket()
            sockets.append(attempt)
            try:
                port = draw.randrange(_FIRST_OWN_PORT, _first_port_of_connections())
                attempt.bind((LOOPBACK, port))
            except (OSError, ValueError):  # the port is in use, or the range below is empty
                attempt.bind((LOOPBACK, 0))
        return [attempt.getsockname()[1] for attempt in sockets]
    finally:
        for attempt in sockets:
            attempt.close()


def _first_port_of_connections() -> int:
    try:
        return int(_PORTS_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OWN_PORT  # makes the range below empty
