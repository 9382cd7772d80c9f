"""Charts of runs: curves over epochs and time, and the speed of each run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ..runs.record import RunRecord
from ..runs.text import count
from .figure import Figure, Variant, hidden_param, line_dash, run_colour, shown_runs
from .tables import accuracy, rate


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal line across a chart.

    Attributes:
        at: Its height, in the unit of the axis.
        label: The words above it.
    """

    at: float
    label: str

    @classmethod
    def of_target(cls, target: float | None) -> "ReferenceLine | None":
        """The line of a target accuracy, where there is one."""
        return None if target is None else cls(target, f"target {target:g}")

    def layers(self) -> list[alt.Chart]:
        """The line and its words, to be drawn below the curves."""
        chart = alt.Chart(alt.InlineData(values=[{"at": self.at, "label": self.label}]))
        chart = chart.encode(y="at:Q")
        # At the left, where curves have yet to rise.
        words = chart.mark_text(align="left", baseline="bottom", dx=4, dy=-3)
        return [
            chart.mark_rule(strokeDash=[5, 4]),
            words.encode(x=alt.value(0), text="label:N"),
        ]


Curve = Mapping[float, float]
"""Heights by place, such as accuracies by epoch."""

# Closer than this fraction of the range of all curves, two lines of a chart look like one.
_CLOSE = 0.004
# Pixels of one curve before the next one's turn.
_DASH = 9.0


def coinciding(curves: Mapping[str, Curve]) -> list[list[str]]:
    """Group the curves that lie on each other wherever both have a value.

    Args:
        curves: The curves by name.

    Returns:
        The names of each group of two or more.

    Example:
        >>> coinciding({"a": {1: 0.5, 2: 0.9}, "b": {1: 0.5}, "c": {1: 0.1, 2: 0.2}})
        [['a', 'b']]
    """
    heights = [height for curve in curves.values() for height in curve.values()]
    close = _CLOSE * (max(heights) - min(heights)) if heights else 0.0
    groups: list[list[str]] = []
    for name, curve in curves.items():
        same = (group for group in groups if _agree(curve, curves[group[0]], close))
        group = next(same, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [group for group in groups if len(group) > 1]


def _agree(one: Curve, other: Curve, close: float) -> bool:
    common = one.keys() & other.keys()
    return bool(common) and all(abs(one[place] - other[place]) <= close for place in common)


def alternating_dashes(groups: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Dashes with which the curves of a group take turns along their common line.

    Example:
        >>> alternating_dashes([["a", "b"]])
        {'a': [0, 0.0, 9.0, 9.0], 'b': [0, 9.0, 9.0, 0.0]}
    """
    return {
        name: [0, turn * _DASH, _DASH, (len(group) - 1 - turn) * _DASH]
        for group in groups
        for turn, name in enumerate(group)
    }


def nested_sizes(groups: Sequence[Sequence[str]], *, size: float) -> dict[str, float]:
    """Sizes of the points of a group, the later the smaller, so that each is seen as a ring.

    Args:
        groups: The names of each group, in the order in which they are drawn.
        size: Square pixels of a point that lies alone, and of the last of a group.
    """
    found = {}
    for group in groups:
        ring = min(2.2, 9 / len(group))
        for turn, name in enumerate(group):
            found[name] = (size**0.5 + 2 * ring * (len(group) - 1 - turn)) ** 2
    return found


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


_ACCURACY = RunColumn(name="val_accuracy", label="Validation accuracy", form=".3~f", zero=False)
_LEARNING = (
    _ACCURACY,
    RunColumn(name="accuracy", label="Training accuracy", form=".3~f", zero=False),
    RunColumn(name="val_loss", label="Validation loss", form=",.4~g", zero=False),
    RunColumn(name="loss", label="Training loss", form=",.4~g", zero=False),
    RunColumn(name="learning_rate", label="Learning rate", form=",.4~g", zero=True),
    RunColumn(name="images_per_sec", label="Images per second", form=",.0f", zero=True),
)
_GAPS = (
    RunColumn(
        name="batch_norm_gap", label="Moving statistics against a batch", form=".2f", zero=True
    ),
    RunColumn(
        name="batch_norm_replica_gap", label="Replicas against replica 0", form=".2f", zero=True
    ),
)
# From these on BatchNormMonitor warns.
_GAP_LINES = {
    _GAPS[0].name: ReferenceLine(0.5, "warning above 0.5"),
    _GAPS[1].name: ReferenceLine(0.1, "warning above 0.1"),
}
_NOISE = RunColumn(name="gradient_noise_scale", label="Images", form=",.4~g", zero=True)
_COLUMNS = ("epoch", "seconds", *(c.name for c in (*_LEARNING, *_GAPS, _NOISE)), "global_batch")

# The most runs that are described in words.
_DESCRIBED = 8


def epoch_rows(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """The data: a row for each epoch of each run, rounded to what a chart can show."""
    columns = [name for name in _COLUMNS if any(run.logged(name) for run in runs)]
    return [
        {"run": run.name} | {name: _short(epoch.get(name)) for name in columns}
        for run in runs
        for epoch in run.epochs
    ]


def curve_figures(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    """The figures for which any run logged values.

    Args:
        runs: The runs.
        names: Their names in the order of their colours.
    """
    return [
        *_learning_curves(runs, names),
        *_accuracy_over_time(runs, names),
        *_batch_norm_gaps(runs, names),
        *_noise_scale(runs, names),
    ]


def _logged(runs: Sequence[RunRecord], columns: Sequence[RunColumn]) -> list[RunColumn]:
    return [column for column in columns if any(run.logged(column.name) for run in runs)]


def _learning_curves(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    columns = _logged(runs, _LEARNING)
    if not columns:
        return []
    if max(len(run.epochs) for run in runs) > 1:
        caption = (
            "One line per run, one point per epoch. Another seed gives another line: only runs with"
            " several seeds show how much of a difference is chance."
        )
        caption += _equal_curves(runs, columns[0])
    else:
        caption = "One epoch per run: a point each, and no curve."
    return [
        Figure(
            id="learning-curves",
            title="Learning curves",
            caption=caption,
            alt=f"Line chart by epoch. {_in_words(runs)}",
            variants=[
                Variant(
                    label=column.label, chart=run_chart(runs, names, column), column=column.name
                )
                for column in columns
            ],
            by_run=True,
        )
    ]


def _equal_curves(runs: Sequence[RunRecord], column: RunColumn) -> str:
    """Return a sentence that names the runs whose curves lie on each other."""
    groups = coinciding({run.name: curve_of(run, column.name) for run in runs})
    if not groups:
        return ""
    named = "; ".join(" and ".join(f"“{name}”" for name in group[:4]) for group in groups[:3])
    return f" Curves that lie on each other take turns along one line: {named}."


def _accuracy_over_time(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    if not _logged(runs, [_ACCURACY]):
        return []
    targets = {run.accuracy_target for run in runs} - {None}
    target = next(iter(targets)) if len(targets) == 1 else None
    line = ReferenceLine.of_target(target)
    met = [f"{run.name} after {run.met.seconds:.1f} seconds" for run in runs if run.met]
    words = f"The target was reached by {', '.join(met[:_DESCRIBED])}." if met else _in_words(runs)
    chart = run_chart(runs, names, _ACCURACY, by="seconds", line=line)
    return [
        Figure(
            id="accuracy-over-time",
            title="Validation accuracy against time",
            caption="Wall-clock time since training began, validation included. Only compare runs"
            " of one machine that had no other work.",
            alt=f"Line chart of the validation accuracy against seconds. {words}",
            variants=[Variant(label=_ACCURACY.label, chart=chart, column=_ACCURACY.name)],
            by_run=True,
        )
    ]


def _batch_norm_gaps(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    columns = _logged(runs, _GAPS)
    if not columns:
        return []
    return [
        Figure(
            id="batch-norm-gaps",
            title="Batch norm: error of the moving statistics",
            caption="The worst layer, in standard deviations or log variance. Small batches show"
            " 0.2 to 0.3 by chance; above the dashed line BatchNormMonitor warns.",
            alt="Line chart of batch norm gaps by epoch. " + _last(runs, columns[0].name),
            variants=[
                Variant(
                    label=column.label,
                    chart=run_chart(runs, names, column, line=_GAP_LINES[column.name]),
                    column=column.name,
                )
                for column in columns
            ],
            by_run=True,
        )
    ]


def _noise_scale(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Figure]:
    if not _logged(runs, [_NOISE]):
        return []
    return [
        Figure(
            id="noise-scale",
            title="Gradient noise scale, in images",
            caption="The global batch beyond which more replicas gain little. Only its order of"
            " magnitude counts: the theory covers neither batch norm nor dropout. It grows while a"
            " model learns, so look at the last epochs.",
            alt="Line chart of the gradient noise scale by epoch. " + _last(runs, _NOISE.name),
            variants=[
                Variant(
                    label=_NOISE.label, chart=run_chart(runs, names, _NOISE), column=_NOISE.name
                )
            ],
            by_run=True,
        )
    ]


def _in_words(runs: Sequence[RunRecord]) -> str:
    parts = []
    for run in runs[:_DESCRIBED]:
        values = run.known("val_accuracy")
        if values:
            parts.append(
                f"{run.name}: validation accuracy from {accuracy(values[0])} to"
                f" {accuracy(values[-1])} in {count(len(values), 'epoch')}"
            )
    return "; ".join(parts) + _and_more(runs)


def _last(runs: Sequence[RunRecord], column: str) -> str:
    logged = [run for run in runs if run.logged(column)]
    parts = [
        f"{run.name}: {run.known(column)[-1]:.3g} after the last epoch"
        for run in logged[:_DESCRIBED]
    ]
    return "; ".join(parts) + _and_more(logged)


def _and_more(runs: Sequence[RunRecord]) -> str:
    more = len(runs) - _DESCRIBED
    return f"; and {count(more, 'more run')}." if more > 0 else "."


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


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
