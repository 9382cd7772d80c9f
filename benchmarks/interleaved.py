"""Times of several contestants taken in turn, so that the machine's drift hits all alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Times = Mapping[str, Sequence[float]]


def seconds(contestant: Callable[[], object]) -> float:
    """Duration of one call."""
    start = time.perf_counter()
    contestant()
    return time.perf_counter() - start


def rounds(contestants: Mapping[str, Callable[[], object]], count: int) -> dict[str, list[float]]:
    """Seconds of every contestant in each of `count` rounds A B C A B C …; warm them up before."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(count):
        for name, contestant in contestants.items():
            times[name].append(seconds(contestant))
    return times


def ratio(times: Times, name: str, base: str) -> str:
    """How many times as fast as `base` a contestant is: median, least and most of the rounds."""
    ratios = [b / a for a, b in zip(times[name], times[base], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
