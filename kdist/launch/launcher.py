"""`launch`: runs a program on several workers, and starts them again where they fail."""

import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import writable_folder
from .child import OUT_OF_MEMORY, Share, judge, shell_code
from .cluster import (
    NOTES,
    Machines,
    check_port_is_free,
    find_machines,
    worker_addresses,
    worker_environment,
)
from .options import LaunchOptions, variables
from .shares import count_workers, divide, visible_cores, visible_gpus
from .workers import Worker, WorkersOutcome, passed_signals, run_workers

_USAGE_ERROR = 2


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


def launch(
    command: Sequence[str],
    options: LaunchOptions,
    *,
    report: Callable[[WorkersOutcome, str], None] = print_outcome,
) -> int:
    """Run a Python program on several workers until it has ended on all.

    Args:
        command: A script, or `-m` and a module, and its arguments.
        options: How many workers, and where.
        report: Called when all workers have ended, as `print_outcome`.

    Returns:
        The exit code of the worker that failed first, 0 if none did.

    Raises:
        UserError: There is no such script, or the machine cannot be divided among the workers.
    """
    program = _program(command)
    machines = find_machines(options, os.environ)
    gpus = visible_gpus(os.environ)
    workers = count_workers(options.workers, gpus)
    shares = divide(workers=workers, gpus=gpus, cores=visible_cores())
    logs = None if options.log_dir is None else Path(options.log_dir)
    if logs is not None:
        writable_folder(logs, option="--log-dir")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with passed_signals(events), tempfile.TemporaryDirectory(prefix="kdist-launch-") as notes:
        for restarts in range(options.max_restarts + 1):
            shared = {NOTES: notes} | variables(**options.limits)
            starts = _starts(program, machines, shares, restarts, logs, shared)
            outcome = run_workers(starts, grace=options.grace, events=events)
            is_last = restarts == options.max_restarts or not _may_restart(outcome)
            report(
                outcome, "" if is_last else f"; restart {restarts + 1} of {options.max_restarts}"
            )
            if is_last:
                break
    return outcome.code


def _may_restart(outcome: WorkersOutcome) -> bool:
    # Wrong arguments stay wrong, and a signal asks to end.
    return outcome.code not in (0, _USAGE_ERROR) and outcome.signal is None


def _program(command: Sequence[str]) -> list[str]:
    if not command or (command[0] == "-m" and len(command) == 1):
        raise UserError("received no program: pass a script, or -m and a module, after the options")
    if command[0] != "-m" and not os.path.isfile(command[0]):
        raise UserError(f"cannot find the script {command[0]!r}: pass its path, or -m and a module")
    return [sys.executable, *command]


def _starts(
    program: list[str],
    machines: Machines,
    shares: Sequence[Share],
    restarts: int,
    logs: Path | None,
    shared: Mapping[str, str],
) -> list["partial[Worker]"]:
    addresses = worker_addresses(machines, workers=len(shares))
    first = machines.rank * len(shares)
    starts = []
    for local_rank, share in enumerate(shares):
        rank = first + local_rank
        if machines.port is not None:
            check_port_is_free(machines.port + local_rank)
        starts.append(
            partial(
                Worker,
                program,
                rank=rank,
                environment={
                    **shared,
                    **worker_environment(
                        addresses, rank=rank, local_rank=local_rank, restarts=restarts
                    ),
                },
                share=share,
                prefix=f"[{rank}] " if len(addresses) > 1 else "",
                log=logs / f"worker-{rank}.log" if logs else None,
            )
        )
    return starts
