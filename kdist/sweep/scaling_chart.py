"""The chart of a scaling sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .charts import figure, save
from .spread import bars

_PARTS = ("compute", "collectives", "input")


def draw(measured: Mapping[str, Any], path: Path) -> Path:
    """Left: efficiency by replicas with its spread. Right: what a step's time goes to."""
    points = measured["points"]
    modes = [mode for mode in ("weak", "strong") if any(one["mode"] == mode for one in points)]
    chart = figure(width=4.5 * (1 + len(modes)), height=4.5)
    sides = chart.subplots(1, 1 + len(modes))
    for index, mode in enumerate(modes):
        own = sorted(
            (one for one in points if one["mode"] == mode), key=lambda one: one["replicas"]
        )
        compared = [one for one in own if one["efficiency"]]
        medians = [one["efficiency"]["median"] for one in compared]
        spread = bars([one["efficiency"] for one in compared])
        counts = [one["replicas"] for one in compared]
        sides[0].errorbar(counts, medians, yerr=spread, marker="o", capsize=3, label=mode)
        _stack(sides[1 + index], own, mode)
    counts = sorted({one["replicas"] for one in points})
    sides[0].axhline(1, color="gray", linestyle="--", linewidth=0.8)
    sides[0].set_xticks(counts)
    sides[0].set_ylim(bottom=0)
    sides[0].set_xlabel("replicas")
    sides[0].set_ylabel("efficiency, median and least to most round")
    sides[0].legend()
    if measured["warning"]:
        chart.suptitle("Logical CPUs share the cores: not a speed-up", color="firebrick", size=11)
    return save(chart, path)


def _stack(axes: Any, points: list[Mapping[str, Any]], mode: str) -> None:
    """Bars of a step's milliseconds, by part."""
    bottom = [0.0] * len(points)
    for part in _PARTS:
        heights = [1e3 * _seconds(one[f"{part}_seconds"]) for one in points]
        axes.bar([str(one["replicas"]) for one in points], heights, bottom=bottom, label=part)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_title(f"{mode}: a step", size=10)
    axes.set_xlabel("replicas")
    axes.set_ylabel("ms")
    axes.legend(fontsize="small")


def _seconds(taken: Mapping[str, float] | float | None) -> float:
    # Below 0 is noise: leaving the part out made no step shorter.
    median = taken["median"] if isinstance(taken, Mapping) else taken
    return max(median or 0.0, 0.0)
