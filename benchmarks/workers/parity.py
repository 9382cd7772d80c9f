"""The parity cases over workers: those of the tests, or all of them."""

import importlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[2] / "tests"
_AT_ONCE = 20  # a group of processes ends at its first failure
_CASE_SECONDS = 180

LAYOUTS = ((2, 1), (2, 2), (3, 1))
"""Numbers of workers, and of replicas of each."""


def of_the_tests() -> Iterator[tuple[str, int, Sequence[str]]]:
    """Run the groups of `tests/workers`; yield each with the number of its cases, and failures."""
    tests = _module("test_workers")
    cases = (tests.TWO_BY_ONE, tests.TWO_BY_TWO, tests.THREE_BY_ONE)
    for (workers, replicas), names in zip(LAYOUTS, cases, strict=True):
        what = f"parity cases of the tests equal, {workers} workers x {replicas} replicas"
        yield what, len(names), _failures(names, workers, replicas)


def of_all() -> Iterator[tuple[str, int, Sequence[str]]]:
    """Run all cases of `tests/parity` on as many workers and replicas, as `of_the_tests`."""
    names = list(_module("cases").CASES)
    for workers, replicas in LAYOUTS:
        what = f"all parity cases equal, {workers} workers x {replicas} replicas"
        yield what, len(names), _failures(names, workers, replicas)


def found(count: int, failures: Sequence[str]) -> str:
    """Say how many cases are equal, and which are not."""
    return f"{count - len(failures)} of {count}" + f"; not: {', '.join(failures)}" * bool(failures)


def _failures(names: Sequence[str], workers: int, replicas: int) -> list[str]:
    """Return the cases that differ; those behind a failure run in another group."""
    failed, left = [], list(names)
    while left:
        ran = _run(left[:_AT_ONCE], workers, replicas)
        equal = [name for name in left if ran.get(name) == [""] * workers]
        if not ran.keys() - set(equal) and equal:
            left = [name for name in left if name not in equal]
            continue
        bad = next((name for name in left if name in ran and name not in equal), None)
        bad = bad or next(name for name in left if name not in equal)  # it ended before its line
        failed.append(bad)
        left = [name for name in left if name not in equal and name != bad]
    return failed


def _run(names: Sequence[str], workers: int, replicas: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kdist-workers-") as folder:
        found: dict[str, Any] = _module("group").run_group(
            "parity",
            names,
            Path(folder) / "group",
            workers=workers,
            replicas=replicas,
            case_seconds=_CASE_SECONDS,
        )
    return found


def _module(name: str) -> Any:
    for folder in ("parity", "workers"):
        if str(_TESTS / folder) not in sys.path:
            sys.path.insert(0, str(_TESTS / folder))
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    return importlib.import_module(name)
