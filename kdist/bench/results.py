"""What races came to: ratios, a table, JSON."""

import dataclasses
import datetime
import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..hardware import cpu_flags, device_names
from ..whole_files import write_whole
from .driver import Outcome, fastest
from .races import MATMUL, Comparison, Race

_INSTRUCTION_SETS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
FORMAT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as fast as another a contestant is.

    Args:
        name: The contestant.
        base: The other.
        median: Of the ratios of single rounds ...
        least: ... the least ...
        most: ... and the most.
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
    # Contestants may do another amount of work in a turn, such as images of another batch.
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


def as_json(race: Race, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Everything of a race, as plain data."""
    found = (ratio(comparison, outcomes) for comparison in race.comparisons)
    return {
        "title": race.title,
        "outcomes": {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()},
        "ratios": [dataclasses.asdict(one) for one in found if one],
    }


def machine() -> dict[str, Any]:
    """Where and when it ran."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": device_names(("CPU:0",))[0],
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _INSTRUCTION_SETS if name in cpu_flags()],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def write(path: Path, races: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write the JSON file, whole or not at all."""
    content = {"format": FORMAT, "machine": machine(), "settings": settings, "races": races}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=1) + "\n")


def table(races: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: the speeds of every race, then its ratios."""
    lines: list[str] = []
    for race in races:
        lines += [
            "",
            f"**{race['title']}**",
            "",
            "| | a second | utilization | memory, MiB |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_speed_row(name, race["outcomes"]) for name in race["outcomes"]]
        if race["ratios"]:
            lines += ["", "| ratio of speeds, median (least to most) | | aimed at |"]
            lines += ["| --- | --- | --- |"]
            lines += [_ratio_row(one) for one in race["ratios"]]
    return "\n".join(lines[1:])


def _speed_row(name: str, outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    outcome = outcomes[name]
    if not outcome["seconds"]:
        return f"| {name} | left out: {outcome['left_out']} | | |"
    done = _a_second(outcome)
    speed = f"{done / 1e9:,.0f} GFLOP" if name == MATMUL else f"{done:,.0f} images"
    # Of the arithmetic that a matrix product of the same race does (MFU: Chowdhery et al. 2022,
    # "PaLM", appendix B); the network's, whoever computes it.
    flops = next((o["facts"]["flops_per_image"] for o in outcomes.values() if _counted(o)), None)
    peak = _a_second(outcomes[MATMUL]) if outcomes.get(MATMUL, {}).get("seconds") else None
    share = f"{done * flops / peak:.0%}" if flops and peak and name != MATMUL else ""
    speed += f" (stopped: {outcome['left_out']})" if outcome["left_out"] else ""
    memory = "" if outcome["peak_mib"] is None else f"{outcome['peak_mib']:,.0f}"
    return f"| {name} | {speed} | {share} | {memory} |"


def _a_second(outcome: Mapping[str, Any]) -> float:
    seconds: float = statistics.median(outcome["seconds"])
    return amount(Outcome(facts=outcome["facts"])) / seconds


def _counted(outcome: Mapping[str, Any]) -> bool:
    return bool(outcome["facts"].get("flops_per_image"))


def _ratio_row(one: Mapping[str, Any]) -> str:
    goal = "" if one["goal"] is None else f"{one['goal']:g}"
    spread = f"{one['median']:.2f} ({one['least']:.2f} to {one['most']:.2f})"
    return f"| {one['name']} : {one['base']} | {spread} | {goal} |"
