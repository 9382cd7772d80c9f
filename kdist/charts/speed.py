"""Images per second of each run."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from ..runs.run_record import RunRecord
from .figure import Figure, Variant
from .formatting import rate
from .style import hidden_param, run_colour, shown_runs

SPEEDS = "speeds"
"""The name of the data of `run_speeds`."""


def speed_rows(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """The data of `run_speeds`: a row for each run."""
    return [
        {
            "run": run.name,
            "images_per_sec": run.images_per_sec,
            "low": min(run.rates),
            "high": max(run.rates),
            "warm": run.is_warm,
            "of": _basis(run),
            "replicas": run.fact("replicas"),
            "global_batch": run.fact("global_batch"),
        }
        for run in runs
        if run.rates
    ]


def _basis(run: RunRecord) -> str:
    if not run.is_warm:
        return "the first epoch alone"
    return "the second epoch" if len(run.rates) == 1 else f"{len(run.rates)} epochs after the first"


def run_speeds(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    """Images per second of each run.

    Args:
        runs: The runs.
        names: Their names in the order of their colours.
    """
    measured = [run for run in runs if run.rates]
    if not measured:
        return []
    order = [run.name for run in runs]
    base = shown_runs(alt.Chart(alt.NamedData(name=SPEEDS))).encode(
        y=alt.Y("run:N", title=None, sort=order),
        color=run_colour(names, legend=None),
        tooltip=[
            alt.Tooltip("run:N", title="Run"),
            alt.Tooltip("images_per_sec:Q", title="Images per second", format=",.1f"),
            alt.Tooltip("of:N", title="Measured in"),
            alt.Tooltip("low:Q", title="Slowest epoch", format=",.1f"),
            alt.Tooltip("high:Q", title="Fastest epoch", format=",.1f"),
            alt.Tooltip("replicas:Q", title="Replicas"),
            alt.Tooltip("global_batch:Q", title="Global batch"),
        ],
    )
    layers = _layers(base, names)
    chart = alt.layer(*layers).add_params(hidden_param())
    speeds = [f"{run.name}: {rate(run.images_per_sec)}" for run in measured[:8]]
    return [
        Figure(
            id="run-speeds",
            title="Speed of each run",
            caption=_caption(measured),
            alt=f"Dot chart of images per second. {'; '.join(speeds)}.",
            variants=[
                Variant(
                    label="Images per second",
                    chart=chart.properties(height=max(90, 30 * len(measured))),
                    column="images_per_sec",
                )
            ],
            by_run=True,
        )
    ]


def _layers(base: alt.Chart, names: Sequence[str]) -> list[alt.Chart]:
    # Not a layer each for warm and cold: of one that the reader hides, Vega has no extent.
    title = "Images per second"
    ends = base.mark_rule(strokeWidth=3, opacity=0.45)
    points = base.mark_point(filled=False, size=100, opacity=1, strokeWidth=2)
    return [
        ends.encode(x=alt.X("low:Q", title=title, scale=alt.Scale(zero=True)), x2="high:Q"),
        points.encode(
            x=alt.X("images_per_sec:Q", title=title),
            fill=alt.Fill("run:N", scale=alt.Scale(domain=list(names)), legend=None),
            fillOpacity=alt.condition("datum.warm", alt.value(1), alt.value(0)),
        ),
    ]


def _caption(measured: Sequence[RunRecord]) -> str:
    words = []
    if any(run.is_warm for run in measured):
        words.append(
            "Point: median of the epochs after the first, which includes the tracing of the step."
            " Bar: slowest to fastest of these epochs."
        )
    if not all(run.is_warm for run in measured):
        words.append(
            "Hollow point: the first epoch, where a run has no other; it includes the tracing of"
            " the step, so do not compare it."
        )
    return " ".join(words)
