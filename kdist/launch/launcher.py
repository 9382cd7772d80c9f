"""`launch`: runs a program on several workers, and starts them again where they fail."""

import dataclasses
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LOST_CODE, UserError
from ..files import writable_folder
from .child import OUT_OF_MEMORY, Share, judge, shell_code
from .launch_options import LaunchOptions, variables, worker_settings
from .machines import (
    NOTES,
    Machines,
    check_port_is_free,
    find_machines,
    worker_addresses,
    worker_environment,
)
from .rendezvous import FirstMachine, OtherMachine, Ready, say
from .shares import count_workers, divide, visible_cores, visible_gpus
from .workers import Worker, WorkersOutcome, passed_signals, run_workers

_USAGE_ERROR = 2
_FINAL = (0, _USAGE_ERROR)  # exit codes after which nothing is started again
# From the loss of a worker to the end of all, as a multiple of the heartbeat's time.
_SILENCE = 3


def print_outcome(outcome: WorkersOutcome, then: str) -> None:
    """Print which worker failed first, with its error.

    Args:
        outcome: How the workers ended.
        then: What happens next, for the end of the line.
    """
    worker = outcome.failed
    if worker is None:
        return
    code = worker.code or 0
    how = (
        f"was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"ended with exit code {shell_code(code)}"
    )
    verdict = judge(code, worker.last_error(), worker.answers)
    if verdict.cause == "memory" and not verdict.is_said and outcome.signal is None:
        how += f" ({OUT_OF_MEMORY}, most likely)"
    if worker.is_stopped:
        how = "stood still, stopped by a signal, and was killed"
    by = f" after {outcome.signal.name}" if outcome.signal else ""
    error = worker.last_error()
    lines = [f"kdist launch: worker {worker.rank} {how}{by}, after {outcome.seconds:.1f} s{then}"]
    if error and not outcome.signal:
        lines = [f"kdist launch: the first error, of worker {worker.rank}:", error, *lines]
    print("\n".join(lines), file=sys.stderr, flush=True)


def launch(command: Sequence[str], options: LaunchOptions) -> int:
    """Run a Python program on several workers until it has ended on all.

    Args:
        command: A script, or `-m` and a module, and its arguments.
        options: How many workers, and where.

    Returns:
        The exit code of the worker that failed first, 0 if none did.

    Raises:
        UserError: There is no such script, the machine cannot be divided among the workers, or with
            `elastic` a machine does not come.
    """
    program = _program(command)
    machines = find_machines(options, os.environ)
    gpus = visible_gpus(os.environ)
    shares = divide(workers=count_workers(options.workers, gpus), gpus=gpus, cores=visible_cores())
    logs = None if options.log_dir is None else Path(options.log_dir)
    if logs is not None:
        writable_folder(logs, option="--log-dir")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with passed_signals(events), tempfile.TemporaryDirectory(prefix="kdist-launch-") as notes:
        shared = {NOTES: notes} | variables(**options.limits)
        job = _Job(program, machines, options, shares, logs, shared, events)
        code = 1
        try:
            code = job.run()
        finally:
            job.rendezvous.close(code)
    return code


class _Job:
    """A program's attempts, on what is left of this machine and of the others."""

    def __init__(
        self,
        program: list[str],
        machines: Machines,
        options: LaunchOptions,
        shares: Sequence[Share],
        logs: Path | None,
        shared: Mapping[str, str],
        events: "queue.SimpleQueue[Any]",
    ) -> None:
        self._program, self._options, self._logs = program, options, logs
        self._shared, self._events = shared, events
        self._gpus = [share.gpus for share in shares]  # of each worker that can be started
        self._restarts_left = options.max_restarts
        self._last: list[int] | None = None  # how many workers each machine had
        self._answers: Mapping[str, Any] = {}
        self._code = 0  # of all machines' last attempt
        self._machines = machines
        names, port = machines.names, machines.port or 0
        if options.elastic and len(names) > 1:
            self._machines = dataclasses.replace(machines, port=port + 1)
            for local_rank in range(len(shares)):
                check_port_is_free(port + 1 + local_rank)
        else:  # each machine decides for itself
            names = names[:1]
        settings = worker_settings(
            os.environ,
            heartbeat_seconds=options.heartbeat_seconds,
            start_timeout_seconds=options.start_timeout,
        )
        limits = {
            "start_seconds": settings.start_timeout_seconds,
            "silence_seconds": _SILENCE * settings.heartbeat_seconds,
        }
        self.rendezvous: FirstMachine | OtherMachine
        if len(names) > 1 and machines.rank:
            self.rendezvous = OtherMachine(names[0], port, machines.rank, events, **limits)
        else:
            self.rendezvous = FirstMachine(names, port, events, **limits)

    def run(self) -> int:
        """Run the program until it has ended well, or is not to be started again."""
        ready, code = Ready(workers=len(self._gpus)), 0
        while (start := self.rendezvous.agree(ready, self._choose)) is not None:
            counts = start.workers
            if len(counts) == 1:
                counts = counts * len(self._machines.names)
            if start.attempt and self._options.elastic:
                say(f"goes on with {_count(counts)}")
            self._last, ready, code = counts, Ready(workers=ready.workers), 0
            if not counts[self._machines.rank]:
                continue  # too few to divide the shards: waits until others are lost
            starts = self._starts(counts, start.attempt)
            outcome = run_workers(starts, grace=self._options.grace, events=self._events)
            code = outcome.code
            print_outcome(outcome, self._then(outcome))
            if outcome.signal is not None:
                break
            ready = self._left(outcome)
        return self._code or code if self.rendezvous.code is None else self.rendezvous.code

    def _then(self, outcome: WorkersOutcome) -> str:
        """Say which restart follows; with `elastic` that depends on the others."""
        most = self._options.max_restarts
        is_last = outcome.code in _FINAL or outcome.signal is not None or not self._restarts_left
        if is_last or self._options.elastic:
            return ""
        return f"; restart {most - self._restarts_left + 1} of {most}"

    def _left(self, outcome: WorkersOutcome) -> Ready:
        """Return what this machine can start after an attempt."""
        self._answers = outcome.answers or self._answers
        left = [gpus for at, gpus in enumerate(self._gpus) if at not in outcome.lost]
        # Before workers have said what divides the shards, or if none is left, as after a failure.
        if not (left and self._answers and self._options.elastic):
            return Ready(workers=len(self._gpus), code=outcome.code)
        self._gpus = left
        return Ready(workers=len(left), lost=len(outcome.lost), code=outcome.code)

    def _choose(self, said: list[Ready | None]) -> list[int] | None:
        """Return how many workers each machine starts, on the first of them; `None` to end."""
        available = [0 if one is None else one.workers for one in said]
        if self._last is None:
            return available
        had = [one for count, one in zip(self._last, said, strict=False) if count]
        codes = [one.code for one in had if one is not None and one.code]
        causes = [code for code in codes if code != LOST_CODE] or codes or [0]
        self._code = _USAGE_ERROR if _USAGE_ERROR in codes else causes[0]
        if not codes or _USAGE_ERROR in codes:  # wrong arguments stay wrong
            return None
        if not (self._options.elastic and any(one is None or one.lost for one in had)):
            if not self._restarts_left:
                return None
            self._restarts_left -= 1
        return fitting(
            available,
            replicas=self._answers.get("replicas", 1),
            shards=self._answers.get("shards"),
        )

    def _starts(self, counts: Sequence[int], attempt: int) -> list["partial[Worker]"]:
        machines, own = self._machines, counts[self._machines.rank]
        addresses = worker_addresses(machines, counts)
        first = sum(counts[: machines.rank])
        starts = []
        gpus = [one for each in self._gpus[:own] for one in each or ()]
        shares = divide(workers=own, gpus=gpus, cores=visible_cores())
        for local_rank, share in enumerate(shares):
            rank = first + local_rank
            if machines.port is not None:
                check_port_is_free(machines.port + local_rank)
            place = worker_environment(
                addresses, rank=rank, local_rank=local_rank, restarts=attempt
            )
            starts.append(
                partial(
                    Worker,
                    self._program,
                    rank=rank,
                    environment={**self._shared, **place},
                    share=share,
                    prefix=f"[{rank}] " if len(addresses) > 1 else "",
                    log=self._logs / f"worker-{rank}.log" if self._logs else None,
                )
            )
        return starts


def _count(counts: Sequence[int]) -> str:
    """Say how many workers there are, such as `3 workers on 2 machines`."""
    workers = f"{sum(counts)} worker{'s' * (sum(counts) > 1)}"
    machines = len(counts) - [*counts].count(0)
    return workers if len(counts) == 1 else f"{workers} on {machines} machine{'s' * (machines > 1)}"


def _program(command: Sequence[str]) -> list[str]:
    if not command or (command[0] == "-m" and len(command) == 1):
        raise UserError("received no program: pass a script, or -m and a module, after the options")
    if command[0] != "-m" and not os.path.isfile(command[0]):
        raise UserError(f"cannot find the script {command[0]!r}: pass its path, or -m and a module")
    return [sys.executable, *command]


def fitting(available: Sequence[int], *, replicas: int, shards: int | None) -> list[int]:
    """Return how many workers each machine starts, so that their replicas divide the shards.

    Args:
        available: How many each can start.
        replicas: Of each worker.
        shards: Of each batch; `None` if any number of replicas will do.

    Example:
        >>> fitting([2, 1], replicas=1, shards=4)
        [2, 0]
    """
    found = list(available)
    while shards is not None and sum(found) > 1 and shards % (sum(found) * replicas):
        found[max(at for at, count in enumerate(found) if count)] -= 1
    return found
