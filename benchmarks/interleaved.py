"""Times of several contestants taken in turn, so that the machine's drift hits all alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Times = Mapping[str, Sequence[float]]
Result = TypeVar("Result")
"""What a contestant returns that does its work once: the seconds that count, or more."""


def rounds(contestants: Mapping[str, Callable[[], Result]], count: int) -> dict[str, list[Result]]:
    """What every contestant returns in each of `count` rounds; warm them up before.

    Every other round goes backwards (A B C C B A …), so that none is always the one that comes
    after the slowest.
    """
    results: dict[str, list[Result]] = {name: [] for name in contestants}
    for index in range(count):
        for name in list(contestants)[:: -1 if index % 2 else 1]:
            results[name].append(contestants[name]())
    return results


def ratio(times: Times, name: str, base: str) -> str:
    """How many times as fast as `base` a contestant is: median, least and most of the rounds."""
    ratios = [b / a for a, b in zip(times[name], times[base], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
