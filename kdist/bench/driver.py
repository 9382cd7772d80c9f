"""Run a benchmark: start a process for each candidate, and let them take turns."""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..performance.onednn import VARIABLE
from .benchmark import Benchmark, Candidate

STARTED = "KDIST_BENCH_STARTED"
"""The environment variable with the time at which a candidate's process was started."""


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """The result of a candidate.

    Args:
        facts: Facts from its workload: images or operations per turn, versions.
        seconds: Seconds of each round.
        peak_mib: Peak memory of its process in MiB; `None` if unknown.
        skipped: Why it was skipped or stopped; empty if it ran to the end.
    """

    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: list[float] = dataclasses.field(default_factory=list)
    peak_mib: float | None = None
    skipped: str = ""


def run_benchmark(
    benchmark: Benchmark, *, rounds: int, announce: Callable[[str], None] = print
) -> dict[str, Outcome]:
    """Let the candidates take turns for several rounds: A B C C B A.

    Every other round is in reverse order, so that no candidate always runs after the slowest one. A
    candidate that fails, or whose library is missing, is skipped with a reason.

    Args:
        benchmark: The benchmark.
        rounds: Number of turns of each candidate, after tracing and warm-up.
        announce: Called with lines about the progress.

    Returns:
        The result of each candidate, by name.
    """
    outcomes = {candidate.name: Outcome() for candidate in benchmark.candidates}
    if benchmark.measured != "work":
        _run_new_processes(benchmark, outcomes, rounds, announce)
        return outcomes
    with contextlib.ExitStack() as stack:
        workers = {}
        for candidate in benchmark.candidates:  # one at a time, as they warm up here
            announce(f"{benchmark.title}: preparing {candidate.name}")
            worker = stack.enter_context(_worker(candidate))
            if _receive(worker, outcomes[candidate.name]):
                workers[candidate.name] = worker
            else:
                announce(f"  skipped: {outcomes[candidate.name].skipped}")
        for turn in range(rounds if workers else 0):
            announce(f"{benchmark.title}: round {turn + 1} of {rounds}")
            for name in list(workers)[:: -1 if turn % 2 else 1]:
                if not _request(workers[name], outcomes[name]):
                    announce(f"  {name} stopped: {outcomes[name].skipped}")
                    del workers[name]
    return outcomes


def _run_new_processes(
    benchmark: Benchmark,
    outcomes: dict[str, Outcome],
    rounds: int,
    announce: Callable[[str], None],
) -> None:
    """Start a process for each turn; what it says of its first work is the turn's result."""
    remaining = list(benchmark.candidates)
    for turn in range(rounds):
        announce(f"{benchmark.title}: round {turn + 1} of {rounds}")
        for candidate in remaining[:: -1 if turn % 2 else 1]:
            outcome = outcomes[candidate.name]
            with _worker(candidate) as worker:
                if _receive(worker, outcome):
                    outcome.seconds.append(outcome.facts[f"{benchmark.measured}_seconds"])
                else:
                    announce(f"  {candidate.name} skipped: {outcome.skipped}")
                    remaining.remove(candidate)


# The processes of all candidates exist at the same time, so none may reserve all GPU memory.
_SHARED_GPU = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def command(candidate: Candidate) -> list[str]:
    """Return the command of a candidate's process."""
    first = "import tensorflow; " if candidate.stock else ""
    code = f"{first}from kdist.bench.worker import main; main()"
    return [sys.executable, "-c", code, candidate.workload, json.dumps(candidate.settings)]


@contextlib.contextmanager
def _worker(candidate: Candidate) -> Iterator["subprocess.Popen[str]"]:
    # kdist has set it in this process; each worker makes its own choice.
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command(candidate),
            env={
                **inherited,
                **_SHARED_GPU,
                **candidate.environment,
                STARTED: str(time.time()),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def _request(worker: "subprocess.Popen[str]", outcome: Outcome) -> bool:
    if worker.stdin is None:
        raise RuntimeError("a worker is started with a pipe")
    try:
        worker.stdin.write("\n")
        worker.stdin.flush()
    except BrokenPipeError:
        outcome.skipped = "its process ended"
        return False
    return _receive(worker, outcome)


def _receive(worker: "subprocess.Popen[str]", outcome: Outcome) -> bool:
    """Read a line from a worker; return whether the worker continues."""
    line = worker.stdout.readline() if worker.stdout else ""
    if not line:
        outcome.skipped = f"its process ended with exit code {worker.wait()}"
        return False
    message = json.loads(line)
    outcome.skipped = message.get("skipped") or message.get("failed", "")
    outcome.facts = message.get("facts", outcome.facts)
    outcome.peak_mib = message.get("peak_mib", outcome.peak_mib)
    outcome.seconds += [message["seconds"]] if "seconds" in message else []
    return not outcome.skipped


def fastest(outcomes: dict[str, Outcome], names: Sequence[str], count: int = 1) -> list[str]:
    """Return the candidates with the smallest median seconds, fastest first."""
    ran = [name for name in names if outcomes.get(name, Outcome()).seconds]
    return sorted(ran, key=lambda name: statistics.median(outcomes[name].seconds))[:count]
