"""Speed against the number of replicas."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..runs.text import count
from .figure import Data, Figure, Figures, Variant
from .formatting import rate
from .series import MeasuredAxis, series_chart, series_names, with_ends


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
