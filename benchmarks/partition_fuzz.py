"""Random programs, divided over replicas and whole: the search of `tests/spmd`, for longer.

    python -m benchmarks.partition_fuzz --programs 20000 --processes 2
    python -m benchmarks.partition_fuzz --programs 100 --seed 1017      # finds a difference again

TensorFlow keeps the functions of a program until the end of the process, so a process draws a
hundred programs; the next process has the next seed. A program that differs is made as small as
possible, and printed as Python; then no further process starts. Ctrl-C ends all processes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter

from .measure import ROOT

EACH = 100
"""Programs of a process, which keeps 30 MB of each."""
_TOGETHER = 6  # programs of one traced step


class _DiffersError(Exception):
    """A program computes something else on several replicas."""


def main() -> int:
    """Search; return 1 if a program differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=20000, help="how many (default 20000)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at once")
    parser.add_argument("--seed", type=int, default=0, help="of the first process (default 0)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.programs, options.processes) < 1:
        parser.error("--programs and --processes have to be 1 or more")
    if options.here:
        return search(options.programs, options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return search_in_processes(options.programs, options.processes, options.seed)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def search_in_processes(programs: int, processes: int, seed: int) -> int:
    """Run all programs in processes; return 1 if a program differs."""
    counts = [EACH] * (programs // EACH) + ([programs % EACH] if programs % EACH else [])
    waiting = [(count, seed + place) for place, count in enumerate(counts)]
    running: list[subprocess.Popen[bytes]] = []
    code = 0
    try:
        while running or waiting:
            while waiting and len(running) < processes:
                running.append(_start(*waiting.pop(0)))
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until one of them has ended
            code = max([code, *(abs(search.poll() or 0) for search in running)])
            running = [search for search in running if search.poll() is None]
            waiting = [] if code else waiting
    finally:
        for search in running:
            search.kill()
            search.wait()
    return code


def _start(programs: int, seed: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks.partition_fuzz", "--here"]
    command += ["--programs", str(programs), "--seed", str(seed)]
    # A session of its own: the parent alone gets Ctrl-C, and ends the others.
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def search(programs: int, number: int) -> int:
    """Draw programs in this process, and compare each; return 1 if one differs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT / "tests" / "spmd"))
    import logging

    import kdist
    import tensorflow as tf
    from hypothesis import HealthCheck, given, seed, settings
    from program_runs import cases, failures_of

    logging.getLogger("kdist").setLevel("ERROR")  # operations that are computed whole are right
    kdist.MirroredStrategy(replicas=4)  # makes logical CPUs, before TensorFlow starts
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    counts: Counter[str] = Counter()
    begin = time.monotonic()

    @seed(number)
    @settings(
        max_examples=max(2 * programs // _TOGETHER, 1),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(_TOGETHER))
    def check(case: tuple) -> None:
        if counts["programs"] >= programs:
            return
        failures = failures_of(*case, counts)
        if failures:
            raise _DiffersError("\n\n".join(f"{text}\n{program}" for program, text in failures))

    exit_code = 0
    try:
        check()
    except _DiffersError as error:
        print(error)
        exit_code = 1
    minutes = (time.monotonic() - begin) / 60
    print(f"seed {number}: {dict(counts)} in {minutes:.0f} minutes", flush=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
