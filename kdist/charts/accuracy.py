"""Time to the target and accuracy against the batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ..analysis.groups import Row, grouped
from ..analysis.time_to_target import row_to_target, rows_to_target
from ..runs.run_record import RunRecord
from .coincidence import alternating_dashes, coinciding
from .figure import Data, Figure, Figures, Variant
from .formatting import accuracy
from .formatting import seconds as in_seconds
from .series import MeasuredAxis, series_chart, series_names, with_ends
from .style import line_dash
from .validation_curves import validation_curves

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
