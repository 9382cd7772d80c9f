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
            "epochs": len(run.rates),
            "replicas": run.fact("replicas"),
            "global_batch": run.fact("global_batch"),
        }
        for run in runs
        if run.rates
    ]


def run_speeds(runs: Sequence[RunRecord]) -> list[Figure]:
    """Images per second of each run."""
    measured = [run for run in runs if run.rates]
    if not measured:
        return []
    names = [run.name for run in runs]
    base = shown_runs(alt.Chart(alt.NamedData(name=SPEEDS))).encode(
        y=alt.Y("run:N", title=None, sort=names, axis=alt.Axis(labelLimit=160)),
        color=run_colour(names),
        tooltip=[
            alt.Tooltip("run:N", title="Run"),
            alt.Tooltip("images_per_sec:Q", title="Images per second", format=",.1f"),
            alt.Tooltip("low:Q", title="Slowest epoch", format=",.1f"),
            alt.Tooltip("high:Q", title="Fastest epoch", format=",.1f"),
            alt.Tooltip("replicas:Q", title="Replicas"),
            alt.Tooltip("global_batch:Q", title="Global batch"),
        ],
    )
    spread = base.mark_rule(strokeWidth=3, opacity=0.45).encode(
        x=alt.X("low:Q", title="Images per second", scale=alt.Scale(zero=True)), x2="high:Q"
    )
    middle = base.mark_point(filled=True, size=110, opacity=1).encode(x="images_per_sec:Q")
    chart = alt.layer(spread, middle).add_params(hidden_param())
    speeds = [f"{run.name}: {rate(run.images_per_sec)}" for run in measured[:8]]
    return [
        Figure(
            id="run-speeds",
            title="Speed of each run",
            caption="Point: median of the epochs after the first, which holds the tracing of the"
            " step. Bar: slowest to fastest epoch.",
            alt=f"Dot chart of images per second. {'; '.join(speeds)}.",
            variants=[
                Variant(
                    label="Images per second",
                    chart=chart.properties(height=max(90, 30 * len(measured))),
                )
            ],
            by_run=True,
        )
    ]
