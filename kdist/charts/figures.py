"""`Figure`: a chart of runs, a sweep, a search or a range test, as SVG and as PNG."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from ..training.record import RunRecord, finite
from .statistics import StepTimeFit
from .tables import setting

# Colours for readers with red-green blindness, too (Okabe & Ito 2008, "Color Universal Design").
_COLOURS = [
    *("#186cc9", "#d55e00", "#05805b", "#c44094", "#9d814a"),
    *("#079ece", "#5330d0", "#676a73", "#8b1819", "#0c2e4b"),
]
_FAINT = "#5a6272"
_STYLE: dict[str, Any] = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "range": {"category": _COLOURS},
    "axis": {"gridColor": "#e3e6eb", "labelColor": _FAINT, "titleColor": _FAINT},
    "axisX": {"grid": False},
    "legend": {"orient": "top", "direction": "horizontal", "columns": 3, "labelLimit": 300},
    "title": {"anchor": "start", "offset": 12, "subtitleColor": _FAINT, "subtitlePadding": 6},
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart, of one view or several beside each other.

    Attributes:
        id: PNG files are named after it.
        title: The subject of the chart.
        caption: How to read it.
        chart: An Altair chart of data by name.
        data: The rows by the name of the data.
    """

    id: str
    title: str
    caption: str
    chart: Any
    data: Mapping[str, list[dict[str, Any]]]

    def spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification with its data and style."""
        return {**self.chart.to_dict(), "datasets": dict(self.data), "config": _STYLE}

    def svg(self) -> str:
        """Render the chart and its legend as SVG. Nothing is fetched."""
        return vl_convert.vegalite_to_svg(self.spec(), allowed_base_urls=[])

    def png(self, *, of: str = "", note: str = "") -> bytes:
        """Render the chart as PNG, with title, caption and legend. Nothing is fetched.

        Args:
            of: The model or study of the chart.
            note: A sentence after the caption.
        """
        title = f"{of}: {self.title}" if of else self.title
        subtitle = textwrap.wrap(f"{self.caption} {note}".strip(), 110)
        heading = {"text": title, "subtitle": subtitle}
        spec = {**self.spec(), "title": heading, "padding": 20, "background": "white"}
        return vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])


def _side_by_side(views: Sequence[Any]) -> Any:
    if len(views) == 1:
        return views[0].properties(width=680, height=340)
    sized = [view.properties(width=440, height=260) for view in views]
    return alt.concat(*sized, columns=2, spacing=30)


def _chart(data: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=data))


# Vega has ticks at halves, too, in spite of `tickMinStep`.
_WHOLE_NUMBERS = alt.Axis(format="d", labelExpr="datum.value % 1 ? '' : datum.label")


# Runs

_BY_EPOCH = {
    "val_accuracy": "Validation accuracy",
    "val_loss": "Validation loss",
    "accuracy": "Training accuracy",
    "loss": "Training loss",
    "images_per_sec": "Images per second",
    "learning_rate": "Learning rate",
    "batch_norm_gap": "Batch norm: moving statistics against a batch",
    "batch_norm_replica_gap": "Batch norm: replicas against replica 0",
}
_FROM_ZERO = {"images_per_sec", "learning_rate", "batch_norm_gap", "batch_norm_replica_gap"}


def learning_curves(runs: Sequence[RunRecord]) -> list[Figure]:
    """Draw the history of runs by epoch, and the validation accuracy by seconds.

    Args:
        runs: Runs, each with a name of its own.

    Returns:
        One figure with a view per logged column; none if nothing was logged.
    """
    columns = [name for name in _BY_EPOCH if any(run.logged(name) for run in runs)]
    if not columns:
        return []

    def draw_lines(column: str, x: alt.X) -> Any:
        scale = alt.Scale(zero=column in _FROM_ZERO)
        color = alt.Color("run:N", title=None, scale=alt.Scale(domain=[run.name for run in runs]))
        y = alt.Y(f"{column}:Q", title=_BY_EPOCH[column], scale=scale)
        return _chart("epochs").mark_line(point=True, opacity=0.7).encode(x=x, y=y, color=color)

    epoch = alt.X("epoch:Q", title="Epoch", axis=_WHOLE_NUMBERS, scale=alt.Scale(zero=False))
    views = [draw_lines(column, epoch) for column in columns]
    if columns[0] == "val_accuracy":
        views.insert(1, draw_lines("val_accuracy", alt.X("seconds:Q", title="Seconds of training")))
    rows = [
        {"run": run.name} | {name: row.get(name) for name in ("epoch", "seconds", *columns)}
        for run in runs
        for row in run.epochs
    ]
    return [
        Figure(
            id="learning-curves",
            title="Learning curves",
            caption="One line per run, one point per epoch. Other seeds give other lines.",
            chart=_side_by_side(views),
            data={"epochs": rows},
        )
    ]


# Sweeps


def series_names(settings: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Name each setting after the columns whose values differ.

    Example:
        >>> series_names([{"replicas": 1, "lr_rule": "sqrt"}, {"replicas": 2, "lr_rule": "sqrt"}],
        ...     ["lr_rule", "replicas"])
        ['replicas 1', 'replicas 2']
    """
    varied = [name for name in columns if len({row[name] for row in settings}) > 1]
    return [
        ", ".join(f"{name.replace('_', ' ')} {setting(row[name])}" for name in varied) or "measured"
        for row in settings
    ]


def throughput_figures(summary: Mapping[str, Any]) -> list[Figure]:
    """Draw a throughput sweep: speed and step time by batch, with the fit.

    Args:
        summary: The result of `ThroughputSweep.summarize`.
    """
    points = summary["points"]
    if not points:
        return []
    names = series_names(points, ["replicas"])
    series = dict(zip((point["replicas"] for point in points), names, strict=True))
    medians = [
        {"series": series[point["replicas"]], "x": point["batch_size"]}
        | _spread_columns("images_per_sec", point["images_per_sec"])
        | _spread_columns("milliseconds", point["step_seconds"], 1e3)
        for point in points
    ]
    dashed = []
    for fit in summary["fits"]:
        replicas = fit["replicas"]
        batches = [point["batch_size"] for point in points if point["replicas"] == replicas]
        line = StepTimeFit(
            overhead_seconds=fit["overhead_seconds"]["median"],
            images_per_sec=fit["images_per_sec"]["median"],
        )
        for batch in map(float, np.geomspace(min(batches), max(batches), 40)):
            speed = line.predict(batch * replicas)
            row = {"images_per_sec": speed, "milliseconds": 1e3 * batch * replicas / speed}
            dashed.append({"series": series[replicas], "x": batch, **row})
    return [
        Figure(
            id="throughput",
            title="Speed against the batch",
            caption="Points: medians; bars: slowest to fastest epoch; dashed: the fitted step time,"
            " a fixed part and one for each image.",
            chart=_sweep_chart(
                _measured_axis("Batch per replica, images", medians, log=True),
                {"images_per_sec": "Images per second", "milliseconds": "Milliseconds per step"},
            ),
            data={"medians": medians, "dashed": dashed},
        )
    ]


def accuracy_figures(summary: Mapping[str, Any]) -> list[Figure]:
    """Draw an accuracy sweep: time to the target and best accuracy by global batch.

    Args:
        summary: The result of `AccuracySweep.summarize`.
    """
    groups = summary["groups"]
    medians = [
        {"series": name, "x": group["global_batch"]}
        | _spread_columns("seconds", group["seconds_to_target"])
        | _spread_columns("epochs", group["epochs_to_target"])
        | _spread_columns("accuracy", group["best_val_accuracy"])
        for name, group in zip(series_names(groups, ["lr_rule", "replicas"]), groups, strict=True)
    ]
    titles = {
        "seconds": "Seconds to the target",
        "epochs": "Epochs to the target",
        "accuracy": "Best validation accuracy",
    }
    known = {
        column: title
        for column, title in titles.items()
        if any(row[column] is not None for row in medians)
    }
    if not known:
        return []
    target = summary["target_accuracy"]
    return [
        Figure(
            id="accuracy",
            title="Time to accuracy" + ("" if target is None else f" above {target:g}"),
            caption="Points: medians; bars: min to max of the seeds. A run that never reached the"
            " target counts as slower than all others.",
            chart=_sweep_chart(
                _measured_axis("Global batch, images", medians, log=True), known, joined=True
            ),
            data={"medians": medians, "dashed": []},
        )
    ]


def scaling_figures(summary: Mapping[str, Any]) -> list[Figure]:
    """Draw a scaling sweep: efficiency and speed by replicas, with the ideal.

    Args:
        summary: The result of `ScalingSweep.summarize`.
    """
    points = summary["points"]
    if not points:
        return []
    medians, ideal = [], []
    base = {
        point["mode"]: point["images_per_sec"]["median"] / point["replicas"]
        for point in points
        if point["replicas"] == summary["base_replicas"]
    }
    for name, point in zip(series_names(points, ["mode"]), points, strict=True):
        place = {"series": name, "x": point["replicas"]}
        speed = _spread_columns("images_per_sec", point["images_per_sec"])
        medians.append({**place, **speed, **_spread_columns("efficiency", point["efficiency"])})
        if point["mode"] in base:
            best = base[point["mode"]] * point["replicas"]
            ideal.append({**place, "images_per_sec": best, "efficiency": 1.0})
    return [
        Figure(
            id="scaling",
            title="Speed on more replicas",
            caption="Points: medians; bars: slowest to fastest round. Efficiency: speed per replica"
            f" relative to {summary['base_replicas']:g} of the same round; dashed: ideal.",
            chart=_sweep_chart(
                _measured_axis("Replicas", medians, log=False),
                {"efficiency": "Efficiency", "images_per_sec": "Images per second"},
                joined=True,
            ),
            data={"medians": medians, "dashed": ideal},
        )
    ]


def _spread_columns(
    column: str, spread: Mapping[str, float | None] | None, factor: float = 1.0
) -> dict[str, float | None]:
    """Return a spread as three columns; an unknown end is the median, which draws no bar."""
    median = finite((spread or {}).get("median"))
    if spread is None or median is None:
        return dict.fromkeys((column, f"{column}_low", f"{column}_high"))
    low, high = (median if spread[end] is None else spread[end] or 0.0 for end in ("low", "high"))
    return {column: median * factor, f"{column}_low": low * factor, f"{column}_high": high * factor}


def _measured_axis(title: str, rows: Iterable[Mapping[str, Any]], *, log: bool) -> alt.X:
    """Return a horizontal axis with a tick at every measured value."""
    kind: dict[str, Any] = {"type": "log", "base": 2} if log else {"zero": False}
    scale = alt.Scale(**kind, nice=False, padding=16)
    axis = alt.Axis(values=sorted({row["x"] for row in rows}), format=",.6~g")
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def _sweep_chart(x: alt.X, titles: Mapping[str, str], *, joined: bool = False) -> Any:
    """Draw a view of each column: the data `medians` with bars, and the `dashed` lines."""
    color = alt.Color("series:N", title=None, legend=alt.Legend(symbolType="circle"))
    medians, dashed = (_chart(name).encode(x=x, color=color) for name in ("medians", "dashed"))

    def draw_view(column: str, title: str) -> Any:
        y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=column != "accuracy"))
        low = alt.Y(f"{column}_low:Q", title=title)
        return alt.layer(
            medians.mark_rule(strokeWidth=3, opacity=0.4).encode(y=low, y2=f"{column}_high:Q"),
            medians.mark_line(opacity=0.7 if joined else 0, point=alt.MarkConfig(opacity=1)).encode(
                y=y
            ),
            dashed.mark_line(strokeDash=[6, 4], strokeWidth=1.5).encode(y=y),
        )

    return _side_by_side([draw_view(column, title) for column, title in titles.items()])


# Searches


def search_figure(
    objective: str,
    trials: Sequence[Mapping[str, Any]],
    *,
    better: Callable[..., Any],
    log: Sequence[str] = (),
) -> Figure:
    """Draw a search: the scores by trial, then by each hyperparameter that varied.

    Args:
        objective: The metric of the scores.
        trials: The trials that ended: their number `trial`, their `outcome` (`"trial"`, `"missed
            the target"` or `"failed"`), their `score` and `values`, the hyperparameters.
        better: `max` or `min`.
        log: The hyperparameters that were sampled on a logarithmic scale.
    """
    names = dict.fromkeys(name for trial in trials for name in trial["values"])
    values = {
        name: [_number_or_text(trial["values"].get(name)) for trial in trials] for name in names
    }
    varied = [name for name in values if len(set(values[name])) > 1]
    # A hyperparameter's name may contain what Vega reads as a path: columns are numbered.
    columns = {name: f"value{number}" for number, name in enumerate(varied)}
    rows: list[dict[str, Any]] = []
    best: float | None = None
    for place, trial in enumerate(trials):
        score = finite(trial["score"])
        best = better((number for number in (best, score) if number is not None), default=None)
        row = {"trial": trial["trial"], "outcome": trial["outcome"], "score": score, "best": best}
        rows.append(row | {column: values[name][place] for name, column in columns.items()})
    # Penalties are so much larger than scores that they would hide how these differ.
    missed = any(row["outcome"] == "missed the target" for row in rows)
    scale = alt.Scale(type="log") if missed else alt.Scale(zero=False)
    y = alt.Y("score:Q", title=objective, scale=scale)
    color = alt.Color("outcome:N", title=None)

    def draw_points(x: alt.X) -> Any:
        scored = _chart("trials").transform_filter("isValid(datum.score)")
        return scored.mark_point(filled=True, size=60, opacity=0.8).encode(x=x, y=y, color=color)

    by_trial = alt.X("trial:Q", title="Trial", axis=_WHOLE_NUMBERS)
    so_far = _chart("trials").mark_line(interpolate="step-after", color="gray")
    views = [alt.layer(so_far.encode(x=by_trial, y=alt.Y("best:Q")), draw_points(by_trial))]
    for name, column in columns.items():
        views.append(draw_points(_value_axis(column, name, values[name], log=name in log)))
    return Figure(
        id="trials",
        title=f"{objective} of the trials",
        caption="One point per trial; gray: the best so far. A trial that missed the target counts"
        " as ten times the time budget or more.",
        chart=_side_by_side(views),
        data={"trials": rows},
    )


def _number_or_text(value: Any) -> float | str:
    number = None if isinstance(value, bool) else finite(value)
    return str(value) if number is None else number


def _value_axis(column: str, title: str, values: Sequence[float | str], *, log: bool) -> alt.X:
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return alt.X(f"{column}:N", title=title)
    is_log = log and min(numbers) > 0
    scale = alt.Scale(type="log", padding=10) if is_log else alt.Scale(zero=False, padding=10)
    return alt.X(f"{column}:Q", title=title, scale=scale, axis=alt.Axis(format=",.6~g"))


# Range tests


def learning_rate_figure(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    *,
    suggestion: float,
    steepest: float,
) -> Figure:
    """Draw a range test: the loss of each batch, their running average, and the suggestion.

    Args:
        rates: The learning rate of each step.
        losses: The loss of each step's batch.
        smoothed: Their running average.
        suggestion: The learning rate to use, marked by a line.
        steepest: The learning rate at which the average falls fastest, marked by a line.
    """
    # The end of the average, where the loss explodes, would leave the rest a flat line.
    average = [value for value in smoothed if math.isfinite(value)]
    top = max(average[: max(len(average) * 9 // 10, 1)], default=1.0)
    bottom = min((value for value in losses if math.isfinite(value)), default=0.0)
    room = 0.1 * (top - bottom or 1.0)
    scale = alt.Scale(domain=[bottom - room, top + room], clamp=True, nice=False)
    log = alt.Scale(type="log")
    x = alt.X("rate:Q", title="Learning rate", scale=log, axis=alt.Axis(format="~e"))
    y = alt.Y("loss:Q", title="Loss", scale=scale)
    marks = _chart("marks").encode(x=x)
    chart = alt.layer(
        _chart("batches").mark_point(filled=True, size=12, opacity=0.4).encode(x=x, y=y),
        _chart("average").mark_line().encode(x=x, y=y),
        marks.mark_rule(strokeDash=[2, 3]),
        marks.mark_text(align="left", dx=5).encode(text="text:N", y=alt.Y("height:Q", scale=None)),
    )
    words = {"suggested": suggestion, "steepest": steepest}
    return Figure(
        id="learning-rate",
        title="Learning rate range test",
        caption="Points: the loss of a batch, each with a higher learning rate. Line: its running"
        " average. Suggested: a tenth of the rate at the lowest average.",
        chart=_side_by_side([chart]),
        data={
            "batches": _finite_rows(rates, losses),
            "average": _finite_rows(rates, smoothed),
            "marks": [
                {"rate": rate, "text": f"{name}: {rate:.2g}", "height": 10 + 16 * number}
                for number, (name, rate) in enumerate(words.items())
            ],
        },
    )


def _finite_rows(rates: Sequence[float], losses: Sequence[float]) -> list[dict[str, Any]]:
    pairs = zip(rates, losses, strict=True)
    return [{"rate": rate, "loss": loss} for rate, loss in pairs if math.isfinite(loss)]
