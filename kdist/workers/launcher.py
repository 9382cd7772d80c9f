"""`launch`: runs a program on several workers of this machine, and restarts failed workers.

`worker_processes.py` runs the workers of an attempt; `hang_detection.py` ends workers that hang.
"""

import contextlib
import os
import queue
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import create_writable_folder
from ..processes.child import Resources
from ..processes.device_assignment import assign_devices, visible_cores, visible_gpus
from ..processes.process_exit import OUT_OF_MEMORY, explain_exit, shell_code
from .launch_options import LaunchOptions
from .tf_config import NOTES, worker_environment
from .worker_processes import Worker, WorkersOutcome, passed_signals, run_workers

LOOPBACK = "127.0.0.1"
# Above the ports of most services, and below the ports that Linux gives to connections.
_PORTS = range(20_000, 32_768)
USAGE_ERROR = 2
_EXIT_CODES_WITHOUT_RESTART = (0, USAGE_ERROR)


def print_outcome(outcome: WorkersOutcome, restart: str) -> None:
    """Print the worker that failed first, with its error, and the restart that follows."""
    worker = outcome.failed
    if worker is None:
        return
    code = worker.code or 0
    how = (
        f"was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"ended with exit code {shell_code(code)}"
    )
    process_exit = explain_exit(code, worker.last_error(), worker.answers)
    if process_exit.cause == "memory" and not process_exit.is_reported and outcome.signal is None:
        how += f" ({OUT_OF_MEMORY}, most likely)"
    if worker.is_stopped:
        how = "was stopped by a signal, and then killed"
    by = f" after {outcome.signal.name}" if outcome.signal else ""
    error = worker.last_error()
    at = f"{outcome.seconds:.1f} s after the start"
    lines = [f"kdist launch: worker {worker.rank} {how}{by}, {at}{restart}"]
    if error and not outcome.signal:
        lines = [f"kdist launch: the first error, of worker {worker.rank}:", error, *lines]
    print("\n".join(lines), file=sys.stderr, flush=True)


def launch(program: Sequence[str], options: LaunchOptions) -> int:
    """Run a Python program on several workers until all workers have ended.

    Returns the exit code of the worker that failed first; without a failure 0, or 1 if the
    reader of the output is gone.
    """
    gpus = visible_gpus(os.environ)
    workers = options.workers or len(gpus) or 1
    assigned = assign_devices(workers=workers, gpus=gpus, cores=visible_cores())
    logs = None if options.log_dir is None else Path(options.log_dir)
    if logs is not None:
        create_writable_folder(logs, option="--log-dir")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with passed_signals(events), tempfile.TemporaryDirectory(prefix="kdist-launch-") as notes:
        return _Attempts(program, options, assigned, logs, notes, events).run()


class _Attempts:
    """The attempts to run a program, on the remaining workers."""

    def __init__(
        self,
        program: Sequence[str],
        options: LaunchOptions,
        assigned: Sequence[Resources],
        logs: Path | None,
        notes: str,
        events: "queue.SimpleQueue[Any]",
    ) -> None:
        self._program, self._options, self._logs = program, options, logs
        self._notes, self._events = notes, events
        self._gpus = [resources.gpus for resources in assigned]  # by worker that can be started
        self._restarts_left = options.max_restarts
        self._reported_sizes: Mapping[str, Any] = {}
        self._attempts = 0

    def run(self) -> int:
        """Run the program until it succeeds or no restart follows; return the exit code."""
        workers: int | None = len(self._gpus)
        code = 0
        while workers:
            starts = self._prepare_workers(workers)
            outcome = run_workers(starts, grace=self._options.grace, events=self._events)
            code = outcome.code
            print_outcome(outcome, self._describe_restart(outcome))
            workers = self._next_workers(outcome)
            self._attempts += 1
        return code

    def _describe_restart(self, outcome: WorkersOutcome) -> str:
        """Describe the restart that follows; empty with `elastic`: `_next_workers` decides."""
        most = self._options.max_restarts
        is_last = _is_final(outcome) or not self._restarts_left
        if is_last or self._options.elastic:
            return ""
        return f"; restart {most - self._restarts_left + 1} of {most}"

    def _next_workers(self, outcome: WorkersOutcome) -> int | None:
        """Return the number of workers of the next attempt; `None` without a next attempt."""
        if _is_final(outcome):
            return None
        self._reported_sizes = outcome.answers or self._reported_sizes
        left = [gpus for at, gpus in enumerate(self._gpus) if at not in outcome.lost]
        # If no worker has reported its replicas and shards yet, or no worker is left, a lost worker
        # counts as a failed worker.
        if self._options.elastic and outcome.lost and left and self._reported_sizes:
            self._gpus = left
            workers = fitting_workers(
                len(left),
                replicas=self._reported_sizes.get("replicas", 1),
                shards=self._reported_sizes.get("shards"),
            )
            print(
                f"kdist launch: restarts with {workers} worker{'s' * (workers > 1)}",
                file=sys.stderr,
                flush=True,
            )
            return workers
        if not self._restarts_left:
            return None
        self._restarts_left -= 1
        return len(self._gpus)

    def _prepare_workers(self, workers: int) -> list["partial[Worker]"]:
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(workers)]
        gpus = [gpu for worker_gpus in self._gpus[:workers] for gpu in worker_gpus or ()]
        assigned = assign_devices(workers=workers, gpus=gpus, cores=visible_cores())
        return [
            partial(
                Worker,
                [sys.executable, *self._program],
                rank=rank,
                environment={
                    NOTES: self._notes,
                    **worker_environment(addresses, rank=rank, restarts=self._attempts),
                },
                resources=resources,
                prefix=f"[{rank}] " if workers > 1 else "",
                log=self._logs / f"worker-{rank}.log" if self._logs else None,
            )
            for rank, resources in enumerate(assigned)
        ]


def _is_final(outcome: WorkersOutcome) -> bool:
    return outcome.code in _EXIT_CODES_WITHOUT_RESTART or outcome.signal is not None


def check_program(command: Sequence[str]) -> list[str]:
    """Return the command of a Python program, without Python itself."""
    if not command or (command[0] == "-m" and len(command) == 1):
        raise UserError("received no program: pass a script, or -m and a module, after the options")
    if command[0] != "-m" and not os.path.isfile(command[0]):
        raise UserError(f"cannot find the script {command[0]!r}: pass its path, or -m and a module")
    return list(command)


def fitting_workers(available: int, *, replicas: int, shards: int | None) -> int:
    """Return the largest number of workers with replicas that divide the shards; at least 1.

    Examples:
        >>> fitting_workers(3, replicas=1, shards=4)
        2
    """
    workers = available
    while shards is not None and workers > 1 and shards % (workers * replicas):
        workers -= 1
    return workers


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback interface.

    Workers listen on the ports only seconds later. Meanwhile the system may give away
    ports of its range for connections, so ports below this range are preferred.
    """
    # Simultaneous launches draw different ports; 0 is any free port.
    drawn = random.SystemRandom().sample(_PORTS, 2 * count)
    ports: list[int] = []
    with contextlib.ExitStack() as sockets:
        for port in [*drawn, *[0] * count]:
            if len(ports) < count:
                attempt = sockets.enter_context(socket.socket())
                with contextlib.suppress(OSError):  # the port is in use
                    attempt.bind((LOOPBACK, port))
                    ports.append(attempt.getsockname()[1])
    return ports
