"""The charts of an accuracy sweep."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .charts import figure, save
from .experiment import Row
from .spread import grouped

_COLUMNS = 4


def draw_times(rows: Sequence[Row], measured: Mapping[str, Any], path: Path) -> Path:
    """Seconds and epochs to the target by global batch: medians, intervals, single runs."""
    chart = figure(width=10, height=4.5)
    sides = chart.subplots(1, 2)
    series = sorted(grouped(measured["groups"], "lr_rule", "replicas").items())
    critical = measured["critical_batch"]
    for axes, unit in zip(sides, ("seconds", "epochs"), strict=True):
        top = 1.1 * max(row[unit] for row in rows)
        for index, ((rule, replicas), groups) in enumerate(series):
            shift = 2 ** (0.12 * (index - (len(series) - 1) / 2))  # beside each other
            color = f"C{index}"
            name = f"{rule}, {replicas} replica{'s' * (replicas > 1)}"
            known = [g for g in groups if g[f"{unit}_to_target"]["median"] is not None]
            at = [g["global_batch"] * shift for g in known]
            medians = [g[f"{unit}_to_target"]["median"] for g in known]
            axes.plot(at, medians, "-s", color=color, label=name)
            for where, group in zip(at, known, strict=True):
                _interval(axes, where, group[f"{unit}_to_target"], top, color)
            own = [r for r in rows if (r["lr_rule"], r["replicas"]) == (rule, replicas)]
            for there, face in ((True, color), (False, "none")):
                runs = [r for r in own if bool(r["reached_target"]) is there]
                axes.plot(
                    [r["global_batch"] * shift for r in runs],
                    [r[f"{unit}_to_target"] if there else r[unit] for r in runs],
                    "o" if there else "^",
                    color=color,
                    markerfacecolor=face,
                    markersize=4,
                    alpha=0.6,
                )
        if critical is not None:
            axes.axvline(critical["median"], color="gray", linestyle="--", label="noise scale")
        batches = sorted({row["global_batch"] for row in rows})
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.minorticks_off()
        axes.set_ylim(0, top)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("global batch, images")
        axes.set_ylabel(f"{unit} to accuracy {measured['target_accuracy']:g}")
    sides[1].plot([], [], "^", color="gray", markerfacecolor="none", label="never got there")
    sides[1].plot([], [], ":", color="gray", linewidth=3, label="interval, upper end not known")
    sides[1].legend(fontsize="small")
    return save(chart, path)


def draw_curves(rows: Sequence[Row], measured: Mapping[str, Any], folder: Path) -> Path:
    """Validation accuracy over seconds, a panel for each setting, a line for each seed."""
    groups = sorted(grouped(rows, "global_batch", "replicas", "lr_rule").items())
    columns = min(len(groups), _COLUMNS)
    lines = math.ceil(len(groups) / columns)
    chart = figure(width=max(5.0, 3 * columns), height=max(3.5, 2.4 * lines))
    panels = chart.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, ((batch, replicas, rule), group) in zip(panels, groups, strict=False):
        for row in group:
            seconds, accuracies = _curve(folder / row["run_dir"] / "history.csv")
            axes.plot(seconds, accuracies, linewidth=1, marker=".", label=f"seed {row['seed']}")
        axes.axhline(measured["target_accuracy"], color="gray", linestyle="--", linewidth=0.8)
        axes.set_title(f"batch {batch}, {replicas} replica{'s' * (replicas > 1)}, {rule}", size=9)
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    chart.supxlabel("seconds")
    chart.supylabel("validation accuracy")
    return save(chart, folder / "curves.png")


def _interval(
    axes: Any, where: float, found: Mapping[str, float | None], top: float, color: str
) -> None:
    """The interval's bar; an end that is not known is dotted to the edge."""
    median, low, high = found["median"], found["low"], found["high"]
    for end, edge in ((low, 0.0), (high, top)):
        axes.plot(
            [where, where],
            [median, edge if end is None else end],
            ":" if end is None else "-",
            color=color,
            linewidth=3,
            alpha=0.35,
        )


def _curve(path: Path) -> tuple[list[float], list[float]]:
    """Seconds and accuracies of the epochs; nothing of a file that was lost or changed since."""
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        pairs = [(float(line["seconds"]), float(line["val_accuracy"])) for line in lines]
    except (OSError, ValueError, KeyError, TypeError):
        return [], []
    return [seconds for seconds, _ in pairs], [accuracy for _, accuracy in pairs]
