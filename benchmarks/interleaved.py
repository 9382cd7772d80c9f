"""Time several candidates in turn, so that fluctuations of the machine affect all equally."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Times = Mapping[str, Sequence[float]]
Result = TypeVar("Result")
"""The result of a candidate's turn, such as its seconds."""


def rounds(candidates: Mapping[str, Callable[[], Result]], count: int) -> dict[str, list[Result]]:
    """Return the results of every candidate in `count` rounds; warm them up before.

    Every other round is in reverse order (A B C C B A …), so that no candidate always runs after
    the slowest one.
    """
    results: dict[str, list[Result]] = {name: [] for name in candidates}
    for index in range(count):
        for name in list(candidates)[:: -1 if index % 2 else 1]:
            results[name].append(candidates[name]())
    return results


def timed(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Return a function that calls `work` and returns the seconds that it took by a clock."""

    def turn() -> float:
        start = clock()
        work()
        return clock() - start

    return turn


def ratio(times: Times, name: str, base: str) -> str:
    """Format the speed of a candidate relative to `base`: median (min to max) of the rounds."""
    return spread([b / a for a, b in zip(times[name], times[base], strict=True)])


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Format values as median (min to max)."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"
