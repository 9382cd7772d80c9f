"""`Benchmark`: candidates that take turns, and the ratios that are of interest, as plain data."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

Quantity = Literal["speed", "memory", "seconds"]
"""`seconds` are those of a turn, whatever it has done."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One implementation of a benchmark's work, run in a separate process.

    Args:
        name: Its name in tables.
        workload: A key of `kdist.bench.workloads.WORKLOADS`.
        settings: Arguments of the workload.
        stock: Whether to import TensorFlow before kdist, to use TensorFlow's defaults.
        environment: Environment variables of the process.
    """

    name: str
    workload: str
    settings: dict[str, Any]
    stock: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A ratio that a benchmark measures.

    Args:
        name: The candidate.
        bases: The candidates to compare with; the fastest of them is used.
        goal: The smallest acceptable ratio of speeds, or the largest of memory or seconds; `None`
            if there is no goal.
        of: Of which quantity.
    """

    name: str
    bases: tuple[str, ...]
    goal: float | None = None
    of: Quantity = "speed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Candidates that take turns.

    Args:
        title: Its name in tables.
        candidates: Each runs in a process.
        comparisons: The ratios of interest.
        measured: What the seconds of a turn are: of the work; or, where each turn has a process of
            its own, of its first work (`first`), or from the start of the process to the end of
            its first work (`start`).
    """

    title: str
    candidates: Sequence[Candidate]
    comparisons: Sequence[Comparison] = ()
    measured: Literal["work", "first", "start"] = "work"
