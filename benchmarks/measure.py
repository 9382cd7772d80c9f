"""Candidates that take turns, measurements in processes, and tables, for all benchmarks."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kdist.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]
Result = TypeVar("Result")
"""The result of a candidate's turn, such as its seconds."""


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser that describes a benchmark by its docstring, with `--json`."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="file for the rows of the table")
    return parser


def take_turns(
    candidates: Mapping[str, Callable[[], Result]], rounds: int
) -> dict[str, list[Result]]:
    """Return the results of every candidate in each round; warm them up before.

    Every other round is in reverse order (A B C C B A …), so that the machine's fluctuations affect
    all candidates equally.
    """
    results: dict[str, list[Result]] = {name: [] for name in candidates}
    for index in range(rounds):
        for name in list(candidates)[:: -1 if index % 2 else 1]:
            results[name].append(candidates[name]())
    return results


def make_timer(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Return a function that calls `work` and returns the seconds by a clock."""

    def turn() -> float:
        start = clock()
        work()
        return clock() - start

    return turn


def format_spread(values: Sequence[float], form: str = ".2f") -> str:
    """Format values as median (min to max)."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"


def format_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> str:
    """Format the ratios of two candidates' results, round by round, as median (min to max)."""
    return format_spread([a / b for a, b in zip(numerators, denominators, strict=True)])


def module_command(*arguments: str) -> list[str]:
    """Return the command that runs this benchmark again with more arguments."""
    spec = sys.modules["__main__"].__spec__
    if spec is None:
        raise SystemExit("run a benchmark as a module, such as `python -m benchmarks.speed`")
    name = spec.name.removesuffix(".__main__")
    return [sys.executable, "-m", name, *sys.argv[1:], *arguments]


def run_again(*arguments: str) -> Any:
    """Run this benchmark in a process with more arguments; return its last line, parsed as JSON.

    oneDNN is on, also for stock Keras.
    """
    done = subprocess.run(
        module_command(*arguments),
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


class Table:
    """A Markdown table that is printed row by row.

    Args:
        columns: Titles of the columns.
        title: Title above the table; none by default.
        file: JSON file with the rows of all tables by title, rewritten with each row.
    """

    _rows_by_title: ClassVar[dict[str, list[dict[str, str]]]] = {}

    def __init__(self, *columns: str, title: str = "", file: Path | None = None) -> None:
        self._columns, self._file = columns, file
        self._rows = self._rows_by_title.setdefault(title or "rows", [])
        if title:
            print(f"**{title}**\n")
        print(f"| {' | '.join(columns)} |")
        print(f"|{' --- |' * len(columns)}", flush=True)

    def add(self, *cells: object) -> None:
        """Print a row."""
        texts = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
        print(f"| {' | '.join(texts)} |", flush=True)
        self._rows.append(dict(zip(self._columns, texts, strict=True)))
        if self._file is not None:
            atomic_write(self._file, f"{json.dumps(self._rows_by_title, indent=1)}\n")
