"""`end_started`: end what a worker has started, also in a session of its own."""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

_PROCESSES = Path("/proc")
_MOST_ROUNDS = 5  # a process may start another while it is looked for


def end_started(variables: Mapping[str, str]) -> None:
    """Kill all processes that have inherited these environment variables.

    Does nothing where the system has no `/proc`, nor to programs that have changed the variables.

    Args:
        variables: That no other process has; none for nothing.
    """
    if not variables:
        return
    for _ in range(_MOST_ROUNDS):
        found = _processes_with(variables)
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _processes_with(variables: Mapping[str, str]) -> list[int]:
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for path in _PROCESSES.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            process = int(path.parent.name)
            if process != os.getpid() and wanted.issubset(path.read_bytes().split(b"\0")):
                found.append(process)
    return found
