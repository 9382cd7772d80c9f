"""The bar chart of a throughput sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .charts import figure, save
from .spread import bars
from .step_time_fit import StepTimeFit


def draw(measured: Mapping[str, Any], path: Path) -> Path:
    """Bars of images a second with their spread, and the fit; a group of bars for each batch."""
    points, fits = measured["points"], measured["fits"]
    batches = sorted({one["batch_size"] for one in points})
    replicas = sorted({one["replicas"] for one in points})
    width = 0.8 / len(replicas)
    chart = figure(width=max(6.0, 1.0 + 0.8 * len(batches)), height=4.5)
    axes = chart.subplots()
    for index, count in enumerate(replicas):
        own = [one for one in points if one["replicas"] == count]
        left = [batches.index(one["batch_size"]) - 0.4 + width * (index + 0.5) for one in own]
        rates = [one["images_per_sec"] for one in own]
        axes.bar(
            left,
            [rate["median"] for rate in rates],
            width,
            yerr=bars(rates),
            capsize=3,
            color=f"C{index}",
            alpha=0.8,
            label=f"{count} replica{'s' * (count > 1)}",
        )
        for fit in (one for one in fits if one["replicas"] == count):
            line = StepTimeFit(
                overhead_seconds=fit["overhead_seconds"]["median"],
                images_per_sec=fit["images_per_sec"]["median"],
            )
            predicted = [line.predict(one["batch_size"] * count) for one in own]
            axes.plot(left, predicted, "o", color="black", markersize=4, zorder=3)
    if fits:
        axes.plot([], [], "o", color="black", markersize=4, label="overhead + batch / rate")
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set_xlabel("batch a replica, images")
    axes.set_ylabel("images/s, median and least to most epoch")
    axes.set_ylim(bottom=0)
    axes.legend()
    return save(chart, path)
