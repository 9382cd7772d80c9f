"""Images per second against the batch, with the fitted step time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..analysis.groups import Row
from ..analysis.step_time_fit import StepTimeFit
from .figure import Data, Figure, Figures, Variant
from .formatting import rate
from .series import MeasuredAxis, series_chart, series_names, with_ends

_FIT_POINTS = 40
_VIEWS = (("images_per_sec", "Images per second"), ("milliseconds", "Milliseconds per step"))


def throughput_figures(
    ident: str, name: str, rows: Sequence[Row], summary: Mapping[str, Any]
) -> Figures:
    """Draw a throughput sweep, or the measurements of a CSV file.

    Args:
        ident: The figure's; its data are `<ident>-points`, `-medians` and `-fit`.
        name: Of the sweep or file.
        rows: The measurements.
        summary: What `ThroughputSweep.summarize` returned.
    """
    points = summary["points"]
    if not points:
        return [], {}
    names = series_names(points, ["replicas"])
    series = dict(zip((one["replicas"] for one in points), names, strict=True))
    axis = MeasuredAxis(
        column="batch",
        title="Batch per replica, images",
        values=[one["batch_size"] for one in points],
        series=list(dict.fromkeys(names)),
        log=True,
    )
    data = _data(ident, axis, series, rows, summary)
    figure = Figure(
        id=ident,
        title="Speed against the batch",
        of=name,
        caption=_caption(rows, fitted=bool(summary["fits"])),
        alt="Chart of images per second against the batch. "
        + "; ".join(
            f"{label}, batch {one['batch_size']:,.0f}: {rate(one['images_per_sec']['median'])}"
            for label, one in list(zip(names, points, strict=True))[:12]
        ),
        variants=[
            Variant(
                label=label,
                chart=series_chart(
                    ident,
                    axis,
                    column,
                    label,
                    data[f"{ident}-medians"],
                    points=True,
                    dashed="fit" if summary["fits"] else None,
                ),
            )
            for column, label in _VIEWS
        ],
    )
    return [figure], data


def _caption(rows: Sequence[Row], *, fitted: bool) -> str:
    timed = "measurement" if all(row["round"] is None for row in rows) else "epoch"
    fit = (
        " Dashed: a step takes a fixed time and a time for each image, fitted to all points; beyond"
        " the measured batches the fit is a guess."
    )
    return (
        f"Strong points: medians; bars: from the slowest to the fastest {timed}. Faint points: each"
        f" measurement.{fit if fitted else ''}"
    )


def _data(
    ident: str,
    axis: MeasuredAxis,
    series: Mapping[float, str],
    rows: Sequence[Row],
    summary: Mapping[str, Any],
) -> Data:
    measured = []
    for row in rows:
        label, speed = series[row["replicas"]], row["images_per_sec"]
        milliseconds = 1000 * row["images_per_step"] / speed
        values = {"series": label, "images_per_sec": speed, "milliseconds": milliseconds}
        measured.append(values | axis.place(row["batch_size"], label))
    medians = [
        {
            "series": series[one["replicas"]],
            **axis.place(one["batch_size"], series[one["replicas"]]),
            **with_ends("images_per_sec", one["images_per_sec"]),
            **with_ends("milliseconds", one["step_seconds"], 1e3),
        }
        for one in summary["points"]
    ]
    fitted = []
    for fit in summary["fits"]:
        own = [one for one in summary["points"] if one["replicas"] == fit["replicas"]]
        batches = [one["batch_size"] for one in own]
        fitted += _fitted(fit, series[fit["replicas"]], batches)
    return {f"{ident}-points": measured, f"{ident}-medians": medians, f"{ident}-fit": fitted}


def _fitted(fit: Mapping[str, Any], label: str, batches: Sequence[float]) -> list[dict[str, Any]]:
    """Return points of the fitted line, rounded to what a chart can show."""
    line = StepTimeFit(
        overhead_seconds=fit["overhead_seconds"]["median"],
        images_per_sec=fit["images_per_sec"]["median"],
    )
    found = []
    for batch in np.geomspace(min(batches), max(batches), _FIT_POINTS):
        images = batch * fit["replicas"]
        speed = line.predict(images)
        found.append(
            {
                "series": label,
                "batch": float(f"{batch:.5g}"),
                "batch_at": float(f"{batch:.5g}"),
                "images_per_sec": float(f"{speed:.5g}"),
                "milliseconds": float(f"{1000 * images / speed:.5g}"),
            }
        )
    return found
