"""Images a second: of runs, against the batch, against the replicas."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ..errors import UserError
from ..sweep.step_time_fit import StepTimeFit, fit_step_time
from .chart_style import hidden_param, run_colour, shown_runs
from .figure import Figure, Variant
from .run_record import RunRecord
from .series_chart import measured_at, series_chart
from .sweep_record import Group
from .wording import rate

SPEEDS = "speeds"
"""The name of the data of `run_speeds`."""

_FIT_POINTS = 40


def speed_rows(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """The data of `run_speeds`: a row for each run."""
    return [
        {
            "run": run.name,
            "images_per_sec": run.images_per_sec,
            "least": min(run.rates),
            "most": max(run.rates),
            "epochs": len(run.rates),
            "replicas": run.fact("replicas"),
            "global_batch": run.fact("global_batch"),
        }
        for run in runs
        if run.rates
    ]


def run_speeds(runs: Sequence[RunRecord]) -> list[Figure]:
    """Images a second of each run."""
    told = [run for run in runs if run.rates]
    if not told:
        return []
    names = [run.name for run in runs]
    base = shown_runs(alt.Chart(alt.NamedData(name=SPEEDS))).encode(
        y=alt.Y("run:N", title=None, sort=names, axis=alt.Axis(labelLimit=160)),
        color=run_colour(names),
        tooltip=[
            alt.Tooltip("run:N", title="Run"),
            alt.Tooltip("images_per_sec:Q", title="Images a second", format=",.1f"),
            alt.Tooltip("least:Q", title="Slowest epoch", format=",.1f"),
            alt.Tooltip("most:Q", title="Fastest epoch", format=",.1f"),
            alt.Tooltip("replicas:Q", title="Replicas"),
            alt.Tooltip("global_batch:Q", title="Global batch"),
        ],
    )
    spread = base.mark_rule(strokeWidth=3, opacity=0.45).encode(
        x=alt.X("least:Q", title="Images a second", scale=alt.Scale(zero=True)), x2="most:Q"
    )
    middle = base.mark_point(filled=True, size=110, opacity=1).encode(x="images_per_sec:Q")
    chart = alt.layer(spread, middle).add_params(hidden_param())
    told_speeds = [f"{run.name}: {rate(run.images_per_sec)}" for run in told[:8]]
    return [
        Figure(
            id="run-speeds",
            title="Speed of each run",
            caption="Point: median of the epochs after the first, which holds the tracing of the"
            " step. Bar: slowest to fastest epoch.",
            alt=f"Dot chart of images a second. {'; '.join(told_speeds)}.",
            variants=[
                Variant(
                    label="Images a second", chart=chart.properties(height=max(90, 30 * len(told)))
                )
            ],
            by_run=True,
        )
    ]


def batch_rows(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The data of `throughput`: `points` as measured, `medians`, and the `fit` of each series."""
    points, medians, fitted = [], [], []
    for group in groups:
        facts = {"series": group.series, "batch": group.batch_size, "replicas": group.replicas}
        rates = group.values("images_per_sec")
        points += [facts | _speed(one, group) for one in rates]
        if rates:
            middle = group.median("images_per_sec") or 0.0
            ends = {"least": min(rates), "most": max(rates), "count": len(rates)}
            medians.append(facts | _speed(middle, group) | ends)
    for series in dict.fromkeys(group.series for group in groups):
        of_series = [group for group in groups if group.series == series]
        fit = series_fit(of_series)
        if fit is None:
            continue
        sizes = [group.batch_size for group in of_series]
        replicas = of_series[0].replicas
        for batch in np.geomspace(min(sizes), max(sizes), _FIT_POINTS):
            images = fit.predict(batch * replicas)
            fitted.append(
                {
                    "series": series,
                    "batch": float(f"{batch:.5g}"),
                    "images_per_sec": float(f"{images:.5g}"),
                    "milliseconds": float(f"{1000 * batch * replicas / images:.5g}"),
                }
            )
    return {"points": points, "medians": medians, "fit": fitted}


def series_fit(groups: Sequence[Group]) -> StepTimeFit | None:
    """The fit of a step's time, over the images of a step; `None` where there are too few."""
    pairs = [
        (group.images_per_step, one) for group in groups for one in group.values("images_per_sec")
    ]
    try:
        return fit_step_time([batch for batch, _ in pairs], [one for _, one in pairs])
    except UserError:  # fewer than two batch sizes
        return None


def round_fits(groups: Sequence[Group]) -> list[StepTimeFit]:
    """The fit of each round that has one; typed numbers have no rounds."""
    rounds = sorted({one for group in groups for one in group.values("round")})
    fits = []
    for turn in rounds:
        own = [[row for row in group.rows if row.get("round") == turn] for group in groups]
        pairs = [(group, rows) for group, rows in zip(groups, own, strict=True) if rows]
        fits.append(series_fit([dataclasses.replace(group, rows=rows) for group, rows in pairs]))
    return [fit for fit in fits if fit is not None]


def throughput(ident: str, name: str, groups: Sequence[Group], points: str) -> list[Figure]:
    """Images a second against the batch, with the fitted step time.

    Args:
        ident: The figure's; its data are `<ident>-points`, `-medians` and `-fit`.
        name: Of the sweep or table.
        groups: Points of one series each differ in batch only.
        points: What the points are, for the caption.
    """
    if not any(group.values("images_per_sec") for group in groups):
        return []
    views = (("images_per_sec", "Images a second"), ("milliseconds", "Milliseconds a step"))
    batches = [group.batch_size for group in groups]
    x = measured_at("batch", "Batch of a replica, images", batches, log=True)
    names = list(dict.fromkeys(group.series for group in groups))
    charts = [
        Variant(
            label=label,
            chart=series_chart(ident, x, column, label, names, dashed="fit"),
        )
        for column, label in views
    ]
    return [
        Figure(
            id=ident,
            title="Speed against the batch",
            of=name,
            caption=f"{points} Dashed: a step takes a fixed time and a time for each image, fitted"
            " to all points; the table of the fitted step time has both. Beyond the measured"
            " batches the fit is a guess.",
            alt="Scatter chart of images a second against the batch. "
            + "; ".join(
                f"{group.series}, batch {group.batch_size:,.0f}:"
                f" {rate(group.median('images_per_sec'))}"
                for group in groups[:12]
            ),
            variants=charts,
        )
    ]


def _speed(images_per_sec: float, group: Group) -> dict[str, float]:
    return {
        "images_per_sec": images_per_sec,
        "milliseconds": 1000 * group.images_per_step / images_per_sec,
    }
