"""Runs a benchmark: starts a process for each candidate, lets them take turns, ends them."""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..performance.onednn import VARIABLE
from .benchmarks import Benchmark, Candidate


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """The result of a candidate.

    Args:
        facts: What its workload reported: images or operations of one turn, versions.
        seconds: Of each round.
        left_out: Why it was skipped or stopped; empty where it ran to the end.
    """

    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: list[float] = dataclasses.field(default_factory=list)
    peak_mib: float | None = None
    left_out: str = ""


def run_benchmark(
    benchmark: Benchmark, *, rounds: int, announce: Callable[[str], None] = print
) -> dict[str, Outcome]:
    """Let the candidates take turns for some rounds: A B C C B A.

    Every other round goes backwards, so that none is always the one that comes after the slowest.
    A candidate that fails or whose library is missing is skipped, with the reason.

    Args:
        benchmark: Who takes part.
        rounds: How many turns each has; tracing and warm-up come before.
        announce: Takes lines about the progress.

    Returns:
        The outcome of each candidate, by name.
    """
    outcomes = {candidate.name: Outcome() for candidate in benchmark.candidates}
    with contextlib.ExitStack() as stack:
        workers = {}
        for candidate in benchmark.candidates:  # one after another: they are warmed up here
            announce(f"{benchmark.title}: preparing {candidate.name}")
            worker = stack.enter_context(_worker(candidate))
            if _hear(worker, outcomes[candidate.name]):
                workers[candidate.name] = worker
            else:
                announce(f"  skipped: {outcomes[candidate.name].left_out}")
        for turn in range(rounds if workers else 0):
            announce(f"{benchmark.title}: round {turn + 1} of {rounds}")
            for name in list(workers)[:: -1 if turn % 2 else 1]:
                if not _ask(workers[name], outcomes[name]):
                    announce(f"  {name} stopped: {outcomes[name].left_out}")
                    del workers[name]
    return outcomes


# All candidates wait beside each other, so none may take a GPU's whole memory.
_SHARED_GPU = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def command(candidate: Candidate) -> list[str]:
    """The process of a candidate."""
    first = "import tensorflow; " if candidate.stock else ""
    code = f"{first}from kdist.bench.worker import main; main()"
    return [sys.executable, "-c", code, candidate.workload, json.dumps(candidate.settings)]


@contextlib.contextmanager
def _worker(candidate: Candidate) -> Iterator["subprocess.Popen[str]"]:
    # kdist has set it for this process; a worker decides for itself.
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command(candidate),
            env={**inherited, **_SHARED_GPU, **candidate.environment},
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


def _ask(worker: "subprocess.Popen[str]", outcome: Outcome) -> bool:
    if worker.stdin is None:
        raise RuntimeError("a worker is started with a pipe")
    try:
        worker.stdin.write("\n")
        worker.stdin.flush()
    except BrokenPipeError:
        outcome.left_out = "its process ended"
        return False
    return _hear(worker, outcome)


def _hear(worker: "subprocess.Popen[str]", outcome: Outcome) -> bool:
    """Take in a line of the worker; false where it will do no more."""
    line = worker.stdout.readline() if worker.stdout else ""
    if not line:
        outcome.left_out = f"its process ended with exit code {worker.wait()}"
        return False
    said = json.loads(line)
    outcome.left_out = said.get("skipped") or said.get("failed", "")
    outcome.facts = said.get("facts", outcome.facts)
    outcome.peak_mib = said.get("peak_mib", outcome.peak_mib)
    outcome.seconds += [said["seconds"]] if "seconds" in said else []
    return not outcome.left_out


def fastest(outcomes: dict[str, Outcome], names: Sequence[str], count: int = 1) -> list[str]:
    """The names of the candidates with the smallest median seconds, fastest first."""
    ran = [name for name in names if outcomes.get(name, Outcome()).seconds]
    return sorted(ran, key=lambda name: statistics.median(outcomes[name].seconds))[:count]
