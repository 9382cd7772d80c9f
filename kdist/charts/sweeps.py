"""Charts of sweeps: accuracy, scaling and throughput."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from ..runs.record import RunRecord
from ..runs.text import count
from .figure import Data, Figure, Figures, Variant, line_dash
from .runs import ReferenceLine, alternating_dashes, coinciding
from .series import MeasuredAxis, series_chart, series_names, with_ends
from .statistics import Row, StepTimeFit, grouped, row_to_target, rows_to_target
from .tables import accuracy, rate
from .tables import seconds as in_seconds

# A value that lies so many times beyond the batches is not shown beside them.
_FAR = 4
_SETTING = ("batch_size", "replicas", "lr_rule")


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """A setting of the sweep: its label, summary and rows, and where it is drawn."""

    label: str
    summary: Mapping[str, Any]
    rows: Sequence[Row]
    place: Mapping[str, Any]


def accuracy_figures(
    prefix: str,
    name: str,
    rows: Sequence[Row],
    summary: Mapping[str, Any],
    runs: Mapping[str, RunRecord],
) -> Figures:
    """Draw an accuracy sweep: time to the target, best accuracy, validation curves.

    Args:
        prefix: What the ids `accuracy`, `best-accuracy` and `curves` begin with.
        name: Of the sweep.
        rows: Of the points that are done.
        summary: What `AccuracySweep.summarize` returned.
        runs: The run folders by the name of their point.
    """
    groups = summary["groups"]
    if not groups:
        return [], {}
    names = series_names(groups, ["lr_rule", "replicas"])
    axis = MeasuredAxis(
        column="global_batch",
        title="Global batch, images",
        values=[group["global_batch"] for group in groups],
        series=list(dict.fromkeys(names)),
        log=True,
    )
    by_setting = grouped(rows, *_SETTING)
    settings = [
        _Setting(
            label=f"batch {group['global_batch']:,.0f}"
            + (f", {series}" if len(axis.series) > 1 else ""),
            summary=group,
            rows=by_setting[tuple(group[column] for column in _SETTING)],
            place={"series": series} | axis.place(group["global_batch"], series),
        )
        for series, group in zip(names, groups, strict=True)
    ]
    figures: list[Figure] = []
    data: Data = {}
    for figure, own in (
        _time_to_target(f"{prefix}accuracy", name, settings, axis, summary),
        _best_accuracy(f"{prefix}best-accuracy", name, settings, axis),
        validation_curves(
            f"{prefix}curves",
            name,
            {one.label: one.rows for one in settings},
            runs,
            target=summary["target_accuracy"],
        ),
    ):
        figures += figure
        data |= own
    return figures, data


def _time_to_target(
    ident: str,
    name: str,
    settings: Sequence[_Setting],
    axis: MeasuredAxis,
    summary: Mapping[str, Any],
) -> Figures:
    data = _times(ident, settings)
    mark = _noise_scale(summary["critical_batch"], axis.values)
    words = "; ".join(
        f"{one.label}: {in_seconds(one.summary['seconds_to_target']['median'])},"
        f" {one.summary['reached']} of {one.summary['runs']}"
        for one in settings[:12]
    )
    views = [
        Variant(
            label=f"{unit.capitalize()} to the target",
            chart=series_chart(
                ident,
                axis,
                unit,
                f"{unit.capitalize()} to the target",
                data[f"{ident}-medians"],
                number=number,
                points=True,
                outcomes=any(row["outcome"] == "not reached" for row in data[f"{ident}-points"]),
                joined=True,
                mark=mark,
            ),
        )
        for unit, number in (("seconds", ",.6~g"), ("epochs", "d"))
    ]
    if data[f"{ident}-curves"]:
        labels = list(dict.fromkeys(row["series"] for row in data[f"{ident}-curves"]))
        chart = _shares(ident, labels, data[f"{ident}-curves"])
        views.append(Variant(label="Share that reached it", chart=chart))
    target = summary["target_accuracy"]
    figure = Figure(
        id=ident,
        title=f"Time to accuracy above {target:g}" if target is not None else "Time to the target",
        of=name,
        caption="Strong points: medians; bars: their 95 % intervals, where runs that never reached"
        " the target count as such (Kaplan and Meier). Faint points: single runs. No strong point:"
        " more than half never reached it. No bar to a side: too few runs to know that end."
        + (" Dotted: the gradient noise scale, an order of magnitude." if mark else ""),
        alt=f"Chart of the time to the target accuracy. {words}.",
        variants=views,
        columns=3,
    )
    return [figure], data


def _noise_scale(
    critical: Mapping[str, float] | None, batches: Sequence[float]
) -> tuple[float, str] | None:
    """Return the gradient noise scale as a mark, unless it is far from the batches."""
    if critical is None or not min(batches) / _FAR <= critical["median"] <= max(batches) * _FAR:
        return None
    return critical["median"], "noise scale"


def _times(ident: str, settings: Sequence[_Setting]) -> Data:
    points, medians, curves = [], [], []
    for one in settings:
        for row in one.rows:
            (seconds, there), (epochs, _) = (row_to_target(row, u) for u in ("seconds", "epochs"))
            times = {"seconds": seconds, "epochs": epochs} if there else row
            outcome = "reached" if there else "not reached"
            points.append(
                {**one.place, **{u: times[u] for u in ("seconds", "epochs")}, "outcome": outcome}
            )
        both = [with_ends(unit, one.summary[f"{unit}_to_target"]) for unit in ("seconds", "epochs")]
        medians.append({**one.place, **both[0], **both[1]})
        if one.summary["reached"]:
            curve = rows_to_target(one.rows, "seconds")
            curves += [
                {"series": one.label, "seconds": at, "share": 1 - share}
                for at, share in zip(curve.times, curve.share_not_yet, strict=True)
            ]
    return {f"{ident}-points": points, f"{ident}-medians": medians, f"{ident}-curves": curves}


def _shares(ident: str, labels: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Any:
    steps = {
        label: {row["seconds"]: row["share"] for row in rows if row["series"] == label}
        for label in labels
    }
    dashes = alternating_dashes(coinciding(steps))
    return (
        alt.Chart(alt.NamedData(name=f"{ident}-curves"))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("seconds:Q", title="Seconds of training"),
            y=alt.Y(
                "share:Q",
                title="Runs that reached the target",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%"),
            ),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=list(labels))),
            strokeDash=line_dash("series", labels, special=dashes),
            tooltip=[
                alt.Tooltip("series:N", title="Setting"),
                alt.Tooltip("seconds:Q", title="Seconds", format=",.1f"),
                alt.Tooltip("share:Q", title="Runs that reached it", format=".0%"),
            ],
        )
        .properties(height=300)
    )


def _best_accuracy(
    ident: str, name: str, settings: Sequence[_Setting], axis: MeasuredAxis
) -> Figures:
    column, label = "best_val_accuracy", "Best validation accuracy"
    measured = [one for one in settings if one.summary[column] is not None]
    if not measured:
        return [], {}
    data = {
        f"{ident}-points": [
            {**one.place, column: row[column]}
            for one in measured
            for row in one.rows
            if row[column] is not None
        ],
        f"{ident}-medians": [
            {**one.place, **with_ends(column, one.summary[column])} for one in measured
        ],
    }
    chart = series_chart(
        ident,
        axis,
        column,
        label,
        data[f"{ident}-medians"],
        number=".3~f",
        zero=False,
        points=True,
        joined=True,
    )
    seeds = max(len(one.rows) for one in measured)
    figure = Figure(
        id=ident,
        title="Accuracy against the batch",
        of=name,
        caption=f"Faint points: the best epoch of each seed (up to {seeds} per setting). Strong"
        " points: their median; bars: min to max. Where the bars of two settings overlap, seeds"
        " alone may explain the difference.",
        alt="Chart of the best validation accuracy against the global batch. "
        + "; ".join(
            f"{one.label}: {accuracy(one.summary[column]['median'])}" for one in measured[:12]
        ),
        variants=[Variant(label=label, chart=chart)],
    )
    return [figure], data


def validation_curves(
    ident: str,
    name: str,
    settings: Mapping[str, Sequence[Row]],
    runs: Mapping[str, RunRecord],
    *,
    target: float | None,
) -> Figures:
    """The validation accuracy over seconds, a view for each setting, a line for each seed.

    Args:
        ident: The figure's; its data are `<ident>-epochs`.
        name: Of the sweep.
        settings: The rows of each setting, by its name.
        runs: The run folders by the name of their point; settings without any are not drawn.
        target: The accuracy that was aimed at.
    """
    epochs: dict[str, list[dict[str, Any]]] = {}
    for number, (label, rows) in enumerate(settings.items()):
        curve = [
            {"setting": number, "seed": row["seed"]}
            | {column: epoch.get(column) for column in ("seconds", "val_accuracy")}
            for row in rows
            if row["name"] in runs
            for epoch in runs[row["name"]].epochs
        ]
        if any(row["val_accuracy"] is not None for row in curve):
            epochs[label] = curve
    data = [row for rows in epochs.values() for row in rows]
    if not data:
        return [], {}
    latest = max(row["seconds"] or 0.0 for row in data)
    heights = [row["val_accuracy"] for row in data if row["val_accuracy"] is not None]
    heights += [] if target is None else [target]
    figure = Figure(
        id=ident,
        title="Validation accuracy over time",
        of=name,
        caption="One line per seed, one point per epoch.",
        alt=f"Line charts of the validation accuracy over seconds, of {len(epochs)} settings.",
        variants=[
            Variant(
                label=label[:1].upper() + label[1:],
                chart=_curves(
                    f"{ident}-epochs",
                    rows[0]["setting"],
                    x=[0, latest],
                    y=[min(heights), max(heights)],
                    target=target,
                ),
            )
            for label, rows in epochs.items()
        ],
        columns=3,
    )
    return [figure], {f"{ident}-epochs": data}


def _curves(
    data: str,
    setting: int,
    *,
    x: Sequence[float],
    y: Sequence[float],
    target: float | None,
) -> Any:
    height = alt.Y(
        "val_accuracy:Q",
        title="Validation accuracy",
        scale=alt.Scale(domain=list(y), zero=False, nice=True),
        axis=alt.Axis(format=".3~f"),
    )
    lines = (
        alt.Chart(alt.NamedData(name=data))
        .transform_filter(f"datum.setting === {setting}")
        .mark_line(point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("seconds:Q", title="Seconds of training", scale=alt.Scale(domain=list(x))),
            y=height,
            color=alt.Color("seed:N", legend=None),
            tooltip=[
                alt.Tooltip("seed:N", title="Seed"),
                alt.Tooltip("seconds:Q", title="Seconds", format=",.1f"),
                alt.Tooltip("val_accuracy:Q", title="Validation accuracy", format=".4f"),
            ],
        )
    )
    line = ReferenceLine.of_target(target)
    return alt.layer(*(line.layers() if line else []), lines).properties(height=300)


def scaling_figures(ident: str, name: str, summary: Mapping[str, Any]) -> Figures:
    """Draw a scaling sweep.

    Args:
        ident: The figure's; its data are `<ident>-medians` and `-ideal`.
        name: Of the sweep.
        summary: What `ScalingSweep.summarize` returned.
    """
    points = summary["points"]
    if not points:
        return [], {}
    names = series_names(points, ["mode"])
    axis = MeasuredAxis(
        column="replicas",
        title="Replicas",
        values=[one["replicas"] for one in points],
        series=list(dict.fromkeys(names)),
        log=False,
    )
    data = _speeds(ident, axis, names, summary)
    medians = data[f"{ident}-medians"]
    efficiency, speed = (
        series_chart(
            ident, axis, column, label, medians, number=number, dashed="ideal", joined=True
        )
        for column, label, number in (
            ("efficiency", "Efficiency", ".0%"),
            ("images_per_sec", "Images per second", ",.6~g"),
        )
    )
    base = count(summary["base_replicas"], "replica")
    figure = Figure(
        id=ident,
        title="Speed on more replicas",
        of=name,
        caption=f"Points: medians, relative to {base} of the same round; bars: from the slowest to"
        " the fastest round. Dashed: ideal, as many times the speed.",
        alt="Chart of images per second against replicas. "
        + "; ".join(
            f"{one['mode']} scaling, {count(one['replicas'], 'replica')}:"
            f" {rate(one['images_per_sec']['median'])}"
            for one in points[:12]
        ),
        variants=[
            Variant(label="Efficiency", chart=efficiency),
            Variant(label="Images per second", chart=speed),
        ],
        columns=2,
    )
    return [figure], data


def _speeds(
    ident: str, axis: MeasuredAxis, names: Sequence[str], summary: Mapping[str, Any]
) -> Data:
    medians: list[dict[str, Any]] = []
    ideal: list[dict[str, Any]] = []
    points = list(zip(names, summary["points"], strict=True))
    base = {
        label: one["images_per_sec"]["median"] / one["replicas"]
        for label, one in points
        if one["replicas"] == summary["base_replicas"]
    }
    for label, one in points:
        place = {"series": label, **axis.place(one["replicas"], label)}
        speeds = with_ends("images_per_sec", one["images_per_sec"])
        medians.append({**place, **speeds, **with_ends("efficiency", one["efficiency"])})
        if label in base:
            at_best = {"images_per_sec": base[label] * one["replicas"], "efficiency": 1.0}
            ideal.append({**place, **at_best})
    return {f"{ident}-medians": medians, f"{ident}-ideal": ideal}


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
