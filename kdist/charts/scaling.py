"""Speed against the number of replicas, and where the time of a step goes."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..runs.text import count
from .figure import Data, Figure, Figures, Variant
from .formatting import rate
from .series import MeasuredAxis, series_chart, series_names, with_ends

_PARTS = ("compute", "collectives", "input")
# The colours of the modes come first, so that no part has one of them.
_PART_COLOURS = ["weak", "strong", *_PARTS]


def scaling_figures(ident: str, name: str, summary: Mapping[str, Any]) -> Figures:
    """Draw a scaling sweep.

    Args:
        ident: The figure's; its data are `<ident>-medians`, `-ideal`, `-steps` and `-parts`.
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
    split = [one for one in points if one["compute_seconds"] is not None]
    data = _speeds(ident, axis, names, summary) | _steps(ident, split)
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
        " the fastest round. Dashed: ideal, as many times the speed. Collectives and input: how"
        " much shorter a step is without them; compute: the rest.",
        alt="Chart of images per second against replicas. "
        + "; ".join(
            f"{one['mode']} scaling, {count(one['replicas'], 'replica')}:"
            f" {rate(one['images_per_sec']['median'])}"
            for one in points[:12]
        ),
        variants=[
            Variant(label="Efficiency", chart=efficiency),
            Variant(label="Images per second", chart=speed),
            *([Variant(label="Time of a step", chart=_step_chart(ident, split))] if split else []),
        ],
        columns=3 if split else 2,
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


def _steps(ident: str, points: Sequence[Mapping[str, Any]]) -> Data:
    """Return the milliseconds of whole steps and of their parts."""
    steps: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for one in points:
        setting = {"setting": _setting(one)}
        steps.append({**setting, **with_ends("milliseconds", one["step_seconds"], 1e3)})
        for order, part in enumerate(_PARTS):
            milliseconds = 1e3 * _seconds(one[f"{part}_seconds"])
            parts.append({**setting, "part": part, "order": order, "milliseconds": milliseconds})
    return {f"{ident}-steps": steps, f"{ident}-parts": parts}


def _setting(one: Mapping[str, Any]) -> str:
    return f"{one['mode']}, {count(one['replicas'], 'replica')}"


def _seconds(taken: Mapping[str, float] | float | None) -> float:
    # Below 0 is noise: leaving the part out made no step shorter.
    median = taken["median"] if isinstance(taken, Mapping) else taken
    return max(median or 0.0, 0.0)


def _step_chart(ident: str, points: Sequence[Mapping[str, Any]]) -> Any:
    y = alt.Y("setting:N", title=None, sort=[_setting(one) for one in points])
    bars = (
        alt.Chart(alt.NamedData(name=f"{ident}-parts"))
        .mark_bar(opacity=0.7)
        .encode(
            x=alt.X(
                "milliseconds:Q",
                title="Milliseconds per step",
                stack="zero",
                axis=alt.Axis(tickCount=6),
            ),
            y=y,
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=_PART_COLOURS),
                legend=alt.Legend(values=list(_PARTS)),
            ),
            order="order:Q",
            tooltip=[
                alt.Tooltip("setting:N", title="Setting"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("milliseconds:Q", title="Milliseconds per step", format=",.4~g"),
            ],
        )
    )
    if all(one["step_seconds"]["low"] is None for one in points):
        return alt.layer(bars).properties(height=300)
    whole = alt.Chart(alt.NamedData(name=f"{ident}-steps"))
    ends = whole.transform_filter("isValid(datum.milliseconds_low)").mark_rule(strokeWidth=2)
    ends = ends.encode(x="milliseconds_low:Q", x2="milliseconds_high:Q", y=y)
    return alt.layer(bars, ends).properties(height=300)
