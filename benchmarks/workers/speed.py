"""The speed of two workers of one replica each, compared with two replicas of one process."""

from typing import Any

from benchmarks.interleaved import rounds

from .group import Group

MODULE = "benchmarks.workers.fit"


def measure(*, count: int, steps: int = 10, batch: int = 64) -> dict[str, list[Any]]:
    """Train with both in turn; return the results of each of `count` turns."""
    settings = {"batch": batch, "steps": steps}
    with (
        Group(MODULE, settings | {"replicas": 2}, workers=1) as one,
        Group(MODULE, settings | {"replicas": 1}, workers=2) as two,
    ):
        for group in (one, two):
            group.ready()
            group.turn()
        return rounds({"1x2": one.turn, "2x1": two.turn}, count)
