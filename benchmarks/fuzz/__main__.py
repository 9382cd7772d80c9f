"""Odd command lines, settings files and results: each has to end in a documented way.

    python -m benchmarks.fuzz                                      # about ten minutes
    python -m benchmarks.fuzz --cases 100 --processes 5 --seed 3

A case passes if the command ends with exit code 0, with exit code 2 and one line, or reaches the
point where training would begin: without a traceback, within half a minute and 2 GiB; and if what
failed has left no file behind. Cases are drawn by Hypothesis, which prints the smallest that fails;
before them, each command is run once as it should be and once with a mistake. They run in one
process; some of those that end are run again as a shell would, and have to end alike.
"""

import argparse
import collections
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import hypothesis

from . import as_process, in_process
from .cases import Case
from .command_lines import COMMANDS, cases, ordinary_cases
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


class _Runs:
    """Runs cases, and counts how they ended.

    Args:
        processes: How many of the cases that end are run again, each in a process ...
        count: ... spread over so many cases.
    """

    def __init__(self, processes: int, count: int) -> None:
        self.ends: collections.Counter[str] = collections.Counter()
        self._processes = processes
        self._share = Fraction(processes, count)
        self._cases = self._repeated = 0

    def check(self, case: Case) -> None:
        """Run a case, and check how it ends."""
        outcome = in_process.run(case)
        outcome.check()
        command = next(iter(case.arguments), "")
        self.ends[f"{command if command in COMMANDS else 'other'}: {outcome.end}"] += 1
        self._cases += 1
        due = self._repeated < min(self._cases * self._share, self._processes)
        if due and outcome.code is not None and as_process.can_run(case):
            self._repeated += 1
            _run_again(case, outcome.code)
            self.ends["in a process, alike"] += 1

    def check_ordinary(self) -> None:
        """Run the cases whose end is known: a draw in which nothing gets far tells little."""
        for case, end in ordinary_cases():
            before = self.ends.copy()
            self.check(case)
            if end not in str(self.ends - before):
                raise FindingError(f"{case}: {self.ends - before}, expected {end}")


def _run_drawn(count: int, processes: int, seed: int) -> collections.Counter[str]:
    runs = _Runs(processes, count)

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
        runs.check(case)

    runs.check_ordinary()
    drawn()
    return runs.ends


def _run_again(case: Case, code: int) -> None:
    again = as_process.run(case)
    again.check()
    if again.code != code:
        raise FindingError(f"exit code {code} here, {again.code} in a process: {again.errors}")


if __name__ == "__main__":
    sys.exit(main())
