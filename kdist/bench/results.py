"""Results of benchmarks: ratios, a table, JSON."""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.spread import format_spread
from ..atomic_files import atomic_write
from ..performance.hardware import machine
from .benchmarks import MATMUL, Benchmark, Comparison
from .driver import Outcome, fastest

FORMAT = 1
BENCHMARKS = "races"
"""What files of this format call their list of benchmarks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as fast as another a candidate is.

    Args:
        name: The candidate.
        base: The other.
        median: Of the ratios of single rounds ...
        least: ... the smallest of them ...
        most: ... and the largest.
        goal: What was aimed at.
    """

    name: str
    base: str
    median: float
    least: float
    most: float
    goal: float | None


def ratio(comparison: Comparison, outcomes: Mapping[str, Outcome]) -> Ratio | None:
    """The comparison, round by round; `None` where one of the two did not take part."""
    bases = fastest(dict(outcomes), comparison.bases)
    if not bases or not outcomes[comparison.name].seconds:
        return None
    one, base = outcomes[comparison.name], outcomes[bases[0]]
    # Candidates may do another amount of work in a turn, such as images of another batch.
    scale = amount(one) / amount(base)
    ratios = [scale * b / a for a, b in zip(one.seconds, base.seconds, strict=False)]
    return Ratio(
        name=comparison.name,
        base=bases[0],
        median=statistics.median(ratios),
        least=min(ratios),
        most=max(ratios),
        goal=comparison.goal,
    )


def amount(outcome: Outcome) -> float:
    """What a turn does: images, or operations."""
    return float(outcome.facts.get("images") or outcome.facts.get("operations") or 1)


def as_json(benchmark: Benchmark, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Everything of a benchmark, as plain data."""
    found = (ratio(comparison, outcomes) for comparison in benchmark.comparisons)
    return {
        "title": benchmark.title,
        "outcomes": {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()},
        "ratios": [dataclasses.asdict(one) for one in found if one],
    }


def write(path: Path, benchmarks: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write the JSON file, completely or not at all."""
    content = {"format": FORMAT, "machine": machine(), "settings": settings, BENCHMARKS: benchmarks}
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(content, indent=1) + "\n")


def table(benchmarks: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: the speeds of every benchmark, then its ratios."""
    lines: list[str] = []
    for benchmark in benchmarks:
        lines += [
            "",
            f"**{benchmark['title']}**",
            "",
            "| | per second | utilization | memory, MiB |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_speed_row(name, benchmark["outcomes"]) for name in benchmark["outcomes"]]
        if benchmark["ratios"]:
            lines += ["", "| ratio of speeds, median (min to max) | | aimed at |"]
            lines += ["| --- | --- | --- |"]
            lines += [_ratio_row(one) for one in benchmark["ratios"]]
    return "\n".join(lines[1:])


def _speed_row(name: str, outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    outcome = outcomes[name]
    if not outcome["seconds"]:
        return f"| {name} | skipped: {outcome['left_out']} | | |"
    done = _per_second(outcome)
    speed = f"{done / 1e9:,.0f} GFLOP" if name == MATMUL else f"{done:,.0f} images"
    # Of the arithmetic that a matrix product of the same benchmark does (MFU: Chowdhery et al.
    # 2022, "PaLM", appendix B); the network's, whoever computes it.
    flops = next((o["facts"]["flops_per_image"] for o in outcomes.values() if _counted(o)), None)
    peak = _per_second(outcomes[MATMUL]) if outcomes.get(MATMUL, {}).get("seconds") else None
    share = f"{done * flops / peak:.0%}" if flops and peak and name != MATMUL else ""
    speed += f" (stopped: {outcome['left_out']})" if outcome["left_out"] else ""
    memory = "" if outcome["peak_mib"] is None else f"{outcome['peak_mib']:,.0f}"
    return f"| {name} | {speed} | {share} | {memory} |"


def _per_second(outcome: Mapping[str, Any]) -> float:
    seconds: float = statistics.median(outcome["seconds"])
    return amount(Outcome(facts=outcome["facts"])) / seconds


def _counted(outcome: Mapping[str, Any]) -> bool:
    return bool(outcome["facts"].get("flops_per_image"))


def _ratio_row(one: Mapping[str, Any]) -> str:
    goal = "" if one["goal"] is None else f"{one['goal']:g}"
    ends = {"median": one["median"], "low": one["least"], "high": one["most"]}
    spread = format_spread(ends, ".2f")
    return f"| {one['name']} : {one['base']} | {spread} | {goal} |"
