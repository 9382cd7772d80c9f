"""Random programs, divided over replicas and whole: the search of `tests/spmd`, for longer.

    python -m benchmarks.partition_fuzz --programs 20000 --processes 2

Each process draws programs of its own (`--seed` and on). One that differs is made as small as
possible, and printed as Python; then its process stops.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TOGETHER = 6  # programs of one traced step


class _DiffersError(Exception):
    """A program is another one on several replicas."""


def main() -> int:
    """Search; return 1 if a program differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=20000, help="how many (default 20000)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: all cores")
    parser.add_argument("--seed", type=int, default=0, help="of the first process (default 0)")
    options = parser.parse_args()
    if min(options.programs, options.processes) < 1:
        parser.error("--programs and --processes have to be 1 or more")
    if options.processes == 1:
        return _search(options.programs, options.seed)
    each = -(-options.programs // options.processes)
    command = [sys.executable, "-m", "benchmarks.partition_fuzz", "--processes", "1"]
    searches = [
        subprocess.Popen([*command, "--programs", str(each), "--seed", str(seed)], cwd=ROOT)
        for seed in range(options.seed, options.seed + options.processes)
    ]
    return max(search.wait() for search in searches)


def _search(programs: int, number: int) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT / "tests" / "spmd"))
    import logging

    import kdist
    import tensorflow as tf
    from hypothesis import HealthCheck, given, seed, settings
    from program_runs import cases, failures_of

    logging.getLogger("kdist").setLevel("ERROR")  # what is computed whole is not the question
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

    found = 0
    try:
        check()
    except _DiffersError as error:
        print(error)
        found = 1
    minutes = (time.monotonic() - begin) / 60
    print(f"seed {number}: {dict(counts)} in {minutes:.0f} minutes", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
