"""Results of benchmarks: ratios, tables, JSON files."""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.spread import format_spread
from ..atomic_files import atomic_write
from ..performance.hardware import host
from .benchmark import Benchmark, Comparison, Quantity
from .benchmarks import MATMUL
from .driver import Outcome, fastest

FORMAT = 1
_UNITS = ("images", "samples", "operations")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two candidates.

    Args:
        name: The candidate.
        base: The candidate that it is compared with.
        median: The median of the ratios of the rounds.
        least: The smallest of them.
        most: The largest of them.
        goal: The smallest acceptable ratio of speeds, or the largest of another quantity; `None` if
            there is no goal.
        of: Of which quantity.
    """

    name: str
    base: str
    median: float
    least: float
    most: float
    goal: float | None
    of: Quantity = "speed"


def ratio(comparison: Comparison, outcomes: Mapping[str, Outcome]) -> Ratio | None:
    """Compute the ratio round by round; `None` if one of the two was skipped."""
    bases = fastest(dict(outcomes), comparison.bases)
    if not bases or not outcomes[comparison.name].seconds:
        return None
    one, base = outcomes[comparison.name], outcomes[bases[0]]
    if comparison.of == "memory":
        if not one.peak_mib or not base.peak_mib:
            return None
        ratios = [one.peak_mib / base.peak_mib]
    elif comparison.of == "seconds":
        ratios = [a / b for a, b in zip(one.seconds, base.seconds, strict=False)]
    else:
        # Candidates may do different amounts of work per turn, such as numbers of images.
        scale = amount(one) / amount(base)
        ratios = [scale * b / a for a, b in zip(one.seconds, base.seconds, strict=False)]
    return Ratio(
        name=comparison.name,
        base=bases[0],
        median=statistics.median(ratios),
        least=min(ratios),
        most=max(ratios),
        goal=comparison.goal,
        of=comparison.of,
    )


def amount(outcome: Outcome) -> float:
    """Return the work of a turn: the number of images, samples or operations."""
    return float(next((outcome.facts[unit] for unit in _UNITS if outcome.facts.get(unit)), 1))


def as_json(benchmark: Benchmark, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return all results of a benchmark as plain data."""
    ratios = (ratio(comparison, outcomes) for comparison in benchmark.comparisons)
    return {
        "title": benchmark.title,
        "measured": benchmark.measured,
        "outcomes": {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()},
        "ratios": [dataclasses.asdict(one) for one in ratios if one],
    }


def write(path: Path, benchmarks: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write the JSON file, completely or not at all."""
    content = {
        "format": FORMAT,
        "machine": host(),
        "settings": settings,
        "benchmarks": benchmarks,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(content, indent=1) + "\n")


def table(benchmarks: Iterable[Mapping[str, Any]]) -> str:
    """Format the speeds and ratios of every benchmark as Markdown."""
    lines: list[str] = []
    for benchmark in benchmarks:
        seconds = benchmark.get("measured", "work") != "work"
        lines += [
            "",
            f"**{benchmark['title']}**",
            "",
            "| | seconds | | memory, MiB |"
            if seconds
            else "| | per second | utilization | memory, MiB |",
            "| --- | --- | --- | --- |",
        ]
        outcomes = benchmark["outcomes"]
        lines += [_speed_row(name, outcomes, seconds=seconds) for name in outcomes]
        if benchmark["ratios"]:
            lines += ["", "| ratio, median (min to max) | | goal |"]
            lines += ["| --- | --- | --- |"]
            lines += [_ratio_row(one) for one in benchmark["ratios"]]
    return "\n".join(lines[1:])


def _speed_row(
    name: str, outcomes: Mapping[str, Mapping[str, Any]], *, seconds: bool = False
) -> str:
    outcome = outcomes[name]
    if not outcome["seconds"]:
        return f"| {name} | skipped: {outcome['skipped']} | | |"
    done = _per_second(outcome)
    speed = f"{done / 1e9:,.0f} GFLOP" if name == MATMUL else f"{done:,.0f} {_unit(outcome)}"
    if seconds:
        speed = f"{statistics.median(outcome['seconds']):.1f}"
    # The network's FLOPs relative to those of a matrix product in the same benchmark (MFU:
    # Chowdhery et al. 2022, "PaLM", appendix B).
    flops = next((o["facts"]["flops_per_image"] for o in outcomes.values() if _counted(o)), None)
    peak = _per_second(outcomes[MATMUL]) if outcomes.get(MATMUL, {}).get("seconds") else None
    share = f"{done * flops / peak:.0%}" if flops and peak and name != MATMUL else ""
    speed += f" (stopped: {outcome['skipped']})" if outcome["skipped"] else ""
    memory = "" if outcome["peak_mib"] is None else f"{outcome['peak_mib']:,.0f}"
    return f"| {name} | {speed} | {share} | {memory} |"


def _per_second(outcome: Mapping[str, Any]) -> float:
    seconds: float = statistics.median(outcome["seconds"])
    return amount(Outcome(facts=outcome["facts"])) / seconds


def _unit(outcome: Mapping[str, Any]) -> str:
    return "samples" if "samples" in outcome["facts"] else "images"


def _counted(outcome: Mapping[str, Any]) -> bool:
    return bool(outcome["facts"].get("flops_per_image"))


def _ratio_row(one: Mapping[str, Any]) -> str:
    of = one.get("of", "speed")
    goal = "" if one["goal"] is None else f"{'≥' if of == 'speed' else '≤'} {one['goal']:g}"
    ends = {"median": one["median"], "low": one["least"], "high": one["most"]}
    spread = f"{one['median']:.2f}" if of == "memory" else format_spread(ends, ".2f")
    return f"| {of}, {one['name']} : {one['base']} | {spread} | {goal} |"
