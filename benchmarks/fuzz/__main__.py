"""Odd command lines, settings files and results: each has to end in a documented way.

    python -m benchmarks.fuzz                                      # about ten minutes
    python -m benchmarks.fuzz --cases 100 --processes 5 --seed 3

A case passes if the command ends with exit code 0, with exit code 2 and one line, or comes to
where training would begin: without a traceback, within half a minute and 2 GiB; and if what failed
has left no file behind. Cases are drawn by Hypothesis, which prints the smallest that fails. They
run in one process; some of those that end are run again as a shell would, and have to end alike.
"""

import argparse
import collections
import sys
import tempfile
from pathlib import Path

import hypothesis

from . import as_process, in_process
from .cases import Case
from .outcome import FindingError


def main() -> None:
    """Run the cases, and count how they ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1500, help="how many (default 1500)")
    parser.add_argument("--processes", type=int, default=100, help="run again (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (default 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdist-fuzz-home-") as home:
        in_process.prepare(Path(home))
        ends = _run_drawn(options.cases, options.processes, options.seed)
    for end, count in sorted(ends.items()):
        print(f"{count:6} {end}")


def _run_drawn(count: int, processes: int, seed: int) -> collections.Counter[str]:
    from .command_lines import COMMANDS, cases

    ends: collections.Counter[str] = collections.Counter()
    every = max(1, count // processes) if processes else 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
    )
    @hypothesis.given(cases())
    def drawn(case: Case) -> None:
        outcome = in_process.run(case)
        outcome.check()
        command = next(iter(case.arguments), "")
        ends[f"{command if command in COMMANDS else 'other'}: {outcome.end}"] += 1
        if every and ends.total() % every == 0 and outcome.code is not None:
            _run_again(case, outcome.code)
            ends["in a process, alike"] += 1

    drawn()
    return ends


def _run_again(case: Case, code: int) -> None:
    if not as_process.can_run(case):
        return
    again = as_process.run(case)
    again.check()
    if again.code != code:
        raise FindingError(f"exit code {code} here, {again.code} in a process: {again.errors}")


if __name__ == "__main__":
    sys.exit(main())
