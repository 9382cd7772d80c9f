"""The rows of the table: what was measured, the goal, and what was found."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.interleaved import rounds, spread

from . import kills, parity
from .group import Group
from .link import Unavailable, slow_link

Results = Mapping[str, Sequence[Mapping[str, float]]]
"""Of each candidate, the seconds of its turns."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        what: What was measured.
        goal: What is to be reached.
        found: What was found.
    """

    what: str
    goal: str
    found: str


def _parity(count: int) -> Iterator[Row]:
    del count
    for what, cases, failures in parity.of_the_tests():
        yield Row(what, "all", parity.found(cases, failures))


def _all_parity(count: int) -> Iterator[Row]:
    """All cases that one process of several replicas has, too."""
    del count
    for what, cases, failures in parity.of_all():
        yield Row(what, "all", parity.found(cases, failures))


def _speed(count: int) -> Iterator[Row]:
    settings = {"batch": 64, "steps": 10}
    with (
        Group("wide_resnet", settings | {"replicas": 2}, workers=1) as one,
        Group("wide_resnet", settings | {"replicas": 1}, workers=2) as two,
    ):
        one.ready()
        two.ready()
        turns = {"1x2": lambda: one.turn("train"), "2x1": lambda: two.turn("train")}
        results = rounds(turns, count)
    ratio = _ratio(results, "1x2", "2x1")
    images = {name: 64 / _median(results, name) for name in results}
    # A process of two workers does half of their work.
    work = _median(results, "1x2", "processor_seconds") / _median(
        results, "2x1", "processor_seconds"
    )
    what = "2 workers x 1 replica : 1 process x 2 replicas, WRN-16-1, global batch 64"
    speeds = f"{images['2x1']:.0f} : {images['1x2']:.0f} images/s"
    yield Row(what, "≥ 0.85", f"{ratio}; {speeds}")
    yield Row("the same, by processor time", "", f"{work / 2:.2f}")


def _collectives(count: int) -> Iterator[Row]:
    with Group("collectives", {"batch": 64, "steps": 10}, workers=2) as group:
        group.ready()
        results = rounds(_turns(group, "with", "without", "bare"), count)
    own = [
        (a["seconds"] - b["seconds"]) / c["seconds"] - 1
        for a, b, c in zip(*(results[name] for name in ("with", "without", "bare")), strict=True)
    ]
    times = ", ".join(f"{1e3 * _median(results, name):.1f} ms {name}" for name in results)
    found = f"{spread(own, '+.0%')}; a step: {times}"
    what = "time in collectives of a step beyond bare all-reduces of the same bytes and number"
    yield Row(what, "≤ 10 %", found)


def _link(count: int) -> Iterator[Row]:
    what = "20 MB of gradients, 1 Gb/s and 1 ms, buckets : one pack"
    settings = {"megabytes": 20, "layers": 10, "batch": 256, "steps": 4}
    try:
        with slow_link(gigabits_per_second=1, delay_ms=1) as link:
            group = Group(
                "slow_link", settings, workers=2, hosts=link.hosts, prefixes=link.prefixes
            )
            with group:
                group.ready()
                results = rounds(_turns(group, "buckets", "one pack"), count)
    except Unavailable as error:
        yield Row(what, "≥ 1.2", f"skipped: {error}")
        return
    note = "" if link.has_delay else "; without the delay, as the kernel has no netem"
    times = f"{1e3 * _median(results, 'buckets'):.0f} ms a step"
    yield Row(what, "≥ 1.2", f"{_ratio(results, 'one pack', 'buckets')}; {times}{note}")


def _kills(count: int) -> Iterator[Row]:
    """Prints its own table."""
    del count
    kills.main(["--each", "20"])
    yield from ()


def _turns(group: Group, *names: str) -> dict[str, Callable[[], Any]]:
    return {name: lambda name=name: group.turn(name) for name in names}


def _median(results: Results, name: str, key: str = "seconds") -> float:
    return statistics.median(one[key] for one in results[name])


def _ratio(results: Results, base: str, name: str) -> str:
    """Format the speed of a candidate relative to `base`: median (min to max) of the rounds."""
    pairs = zip(results[base], results[name], strict=True)
    ratios = [a["seconds"] / b["seconds"] for a, b in pairs]
    return spread(ratios)


MEASURES: dict[str, Callable[[int], Iterator[Row]]] = {
    "parity": _parity,
    "all-parity": _all_parity,
    "speed": _speed,
    "collectives": _collectives,
    "link": _link,
    "kills": _kills,
}
"""By the name that the command line takes."""

USUAL = tuple(name for name in MEASURES if name != "all-parity")
"""Those that are run unless others are asked for."""
