"""Timeout of a worker's start: names the missing workers, and kills the waiting worker.

Run as `python -I start_timeout.py SECONDS WORKER ADDRESS…`; the file needs Python alone. A worker
cannot watch itself: while TensorFlow waits, no further Python thread runs, and SIGTERM is ignored.
The worker runs this script as a child process, and kills the child once all workers have started.
"""

import os
import signal
import socket
import sys
import time

_CONNECT_SECONDS = 3.0


def main() -> None:
    """Wait, print the missing workers, and kill the parent process."""
    seconds, worker, *addresses = sys.argv[1:]
    parent = os.getppid()
    time.sleep(float(seconds))
    others = [(rank, at) for rank, at in enumerate(addresses) if rank != int(worker)]
    found = [(rank, at, find_problem(at)) for rank, at in others]
    if os.getppid() == parent:
        print(format_message(int(worker), float(seconds), found), file=sys.stderr, flush=True)
        os.kill(parent, signal.SIGKILL)


def find_problem(address: str) -> str | None:
    """Return the problem of connecting to an address; `None` if a process listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error) or "no answer"
    return None


def format_message(worker: int, seconds: float, others: list[tuple[int, str, str | None]]) -> str:
    """Return the error message about the workers that have not started."""
    missing = [f"worker {rank} ({at}, {why})" for rank, at, why in others if why is not None]
    if missing:
        who = f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} not started"
        hint = "are the programs started, and can the machines reach each other at these ports?"
    else:
        who = "all other workers listen, but are not connected"
        hint = "do all have the same addresses, and can each machine reach every other machine?"
    return (
        f"kdist: error: worker {worker} has waited {seconds:.0f} seconds for the other workers to"
        f" start. {who[0].upper()}{who[1:]}: {hint}"
    )


if __name__ == "__main__":
    main()
