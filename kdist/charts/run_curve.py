"""One chart of runs: a column of their epochs as lines, or as points where each has one epoch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ..runs.run_record import RunRecord
from .coincidence import Curve, alternating_dashes, coinciding, nested_sizes
from .reference_line import ReferenceLine
from .style import hidden_param, line_dash, run_colour, shown_runs

EPOCHS = "epochs"
"""The name of the data."""

_POINT = 45.0
"""Size of a point, in square pixels."""


@dataclass(frozen=True, kw_only=True)
class RunColumn:
    """What a chart of runs shows.

    Attributes:
        name: The column of `history.csv`.
        label: The title of its axis.
        form: The format of its numbers.
        zero: Whether the axis begins at 0.
    """

    name: str
    label: str
    form: str
    zero: bool

    @property
    def height(self) -> alt.Y:
        """The vertical axis."""
        # Room for a point at the edge.
        scale = alt.Scale(zero=True) if self.zero else alt.Scale(zero=False, padding=6)
        axis = alt.Axis(format=self.form)
        return alt.Y(f"{self.name}:Q", title=self.label, scale=scale, axis=axis)


def run_chart(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    column: RunColumn,
    *,
    by: str = "epoch",
    line: ReferenceLine | None = None,
) -> Any:
    """A chart of a column on the data `EPOCHS`, with the runs that the reader did not hide.

    Args:
        runs: The runs.
        names: Their names in the order of their colours.
        column: What is drawn.
        by: The column of the horizontal axis, `"epoch"` or `"seconds"`.
        line: A line to compare with.
    """
    if by == "epoch" and all(len(run.known(column.name)) < 2 for run in runs):
        return _values_by_run(runs, names, column)
    return _lines(runs, names, column, by, line)


def _values_by_run(runs: Sequence[RunRecord], names: Sequence[str], column: RunColumn) -> Any:
    """A line for each run: of one epoch each there is no curve."""
    with_value = [run.name for run in runs if run.logged(column.name)]
    base = _base(column).transform_filter(f"isValid(datum.{column.name})")
    order = [run.name for run in runs]
    base = base.encode(
        x=alt.X(f"{column.name}:Q", title=column.label, axis=alt.Axis(format=column.form)),
        y=alt.Y("run:N", title=None, sort=order),
        color=run_colour(names, legend=None),
    )
    points = base.mark_point(filled=True, size=110, opacity=1)
    words = base.mark_text(align="left", dx=9).encode(
        text=alt.Text(f"{column.name}:Q", format=column.form),
        color=alt.Undefined,
    )
    height = max(90, 30 * len(with_value))
    return alt.layer(points, words).add_params(hidden_param()).properties(height=height)


def _lines(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    column: RunColumn,
    by: str,
    line: ReferenceLine | None,
) -> Any:
    groups = coinciding({run.name: curve_of(run, column.name) for run in runs})
    if by != "epoch":
        places = {run.name: curve_of(run, by) for run in runs}
        groups = [
            same for group in groups for same in coinciding({name: places[name] for name in group})
        ]
    base = _base(column).encode(x=_horizontal(runs, by), y=column.height, color=run_colour(names))
    dashes = line_dash("run", names, special=alternating_dashes(groups), legend=None)
    lines = base.mark_line().encode(strokeDash=dashes)
    # A gap where an epoch has no value, not a point at 0.
    points = base.transform_filter(f"isValid(datum.{column.name})")
    points = points.mark_point(filled=True, opacity=1, size=_POINT)
    sizes = nested_sizes(groups, size=_POINT)
    if sizes:
        own = f"{json.dumps(sizes)}[datum.run] || {_POINT}"
        points = points.transform_calculate(size=own)
        points = points.encode(size=alt.Size("size:Q", scale=None, legend=None))
    layers = [*(line.layers() if line else []), lines, points]
    return alt.layer(*layers).add_params(hidden_param()).properties(height=300)


def curve_of(run: RunRecord, column: str) -> Curve:
    """The values of a column by epoch, from 1."""
    return {
        place: value for place, value in enumerate(run.values(column), start=1) if value is not None
    }


def _base(column: RunColumn) -> alt.Chart:
    return shown_runs(alt.Chart(alt.NamedData(name=EPOCHS))).encode(
        tooltip=[
            alt.Tooltip("run:N", title="Run"),
            alt.Tooltip("epoch:Q", title="Epoch"),
            alt.Tooltip(f"{column.name}:Q", title=column.label),
            alt.Tooltip("seconds:Q", title="Seconds", format=",.1f"),
        ]
    )


def _horizontal(runs: Sequence[RunRecord], by: str) -> alt.X:
    if by == "seconds":
        return alt.X(
            "seconds:Q",
            title="Seconds of training",
            scale=alt.Scale(zero=True, nice=False, padding=8),
        )
    axis = alt.Axis(values=_ticks(runs), format="d")
    return alt.X("epoch:Q", title="Epoch", axis=axis, scale=alt.Scale(padding=8, nice=False))


def _ticks(runs: Sequence[RunRecord]) -> list[int]:
    """Whole epochs for the axis, ten or so."""
    most = max((int(run.known("epoch")[-1]) for run in runs if run.logged("epoch")), default=0)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, most) if step * 12 >= most)
    return [1, *range(step, most + 1, step)] if step > 1 else list(range(1, most + 1))
