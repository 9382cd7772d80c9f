"""`Figure`: a chart of runs, a sweep, a search or a range test, for a page and as PNG."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from ..runs.record import RunRecord, finite
from .statistics import Row, StepTimeFit, grouped, row_to_target
from .tables import setting

# Ten colours that differ (by 20 in CIEDE2000), to readers with red-green blindness too, and stand
# out from the page (contrast of 3 to 1); from those of Okabe & Ito 2008, "Color Universal Design".
_COLOURS = [
    *("#186cc9", "#d55e00", "#05805b", "#c44094", "#9d814a"),
    *("#079ece", "#5330d0", "#676a73", "#8b1819", "#0c2e4b"),
]
_FAINT = "#5a6272"
CONFIG: dict[str, Any] = {
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "view": {"stroke": None},
    "range": {"category": _COLOURS},
    "axis": {"domain": False, "ticks": False, "gridColor": "#e3e6eb", "labelColor": _FAINT}
    | {"titleColor": _FAINT, "titleFontWeight": "normal", "labelLimit": 320, "labelPadding": 6},
    "axisX": {"grid": False, "domain": True, "domainColor": _FAINT},
    "legend": {"orient": "top", "direction": "horizontal", "columns": 3, "labelLimit": 300},
    "title": {"anchor": "start", "offset": 12, "subtitleColor": _FAINT, "subtitlePadding": 6},
    "rule": {"color": _FAINT},
    "text": {"color": _FAINT},
}
"""The style of all charts, Vega-Lite's `config`."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart, of one view or several beside each other.

    Attributes:
        id: PNG files are named after it.
        title: What is drawn.
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
        """Return the Vega-Lite specification with its data."""
        return {**self.chart.to_dict(), "datasets": dict(self.data)}

    def png(self, *, of: str = "", note: str = "") -> bytes:
        """Render it as PNG, with title, caption and legend.

        Args:
            of: What it is a chart of.
            note: A sentence after the caption.
        """
        title = f"{of}: {self.title}" if of else self.title
        subtitle = textwrap.wrap(f"{self.caption} {note}".strip(), 110)
        spec = self.spec() | {"title": {"text": title, "subtitle": subtitle}, "padding": 20}
        spec |= {"config": CONFIG, "background": "white"}
        # Nothing is fetched: no base URL is allowed.
        return vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])


def _beside(views: Sequence[Any]) -> Any:
    """One view, or several in two columns."""
    if len(views) == 1:
        return views[0].properties(width=680, height=340)
    sized = [view.properties(width=440, height=260) for view in views]
    return alt.concat(*sized, columns=2, spacing=30)


def _chart(data: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=data))


# Vega has ticks at halves, too, in spite of `tickMinStep`.
_WHOLE = alt.Axis(format="d", labelExpr="datum.value % 1 ? '' : datum.label")


def _short(value: Any) -> float | None:
    """A number rounded to what a chart can show, if it is finite."""
    number = finite(value)
    return None if number is None else float(f"{number:.5g}")


# Runs

_BY_EPOCH = {
    "val_accuracy": "Validation accuracy",
    "accuracy": "Training accuracy",
    "val_loss": "Validation loss",
    "loss": "Training loss",
    "learning_rate": "Learning rate",
    "images_per_sec": "Images per second",
    "batch_norm_gap": "Batch norm: moving statistics against a batch",
    "batch_norm_replica_gap": "Batch norm: replicas against replica 0",
    "gradient_noise_scale": "Gradient noise scale, images",
}
_FROM_ZERO = set(_BY_EPOCH) - {"val_accuracy", "accuracy", "val_loss", "loss"}


def learning_curves(runs: Sequence[RunRecord]) -> list[Figure]:
    """Draw what runs, each with a name of its own, logged by epoch, and the accuracy by seconds."""
    names = [name for name in _BY_EPOCH if any(run.logged(name) for run in runs)]
    if not names:
        return []
    picked = alt.selection_point(name="picked", fields=["run"], bind="legend")

    def line(column: str, x: str, title: str) -> Any:
        y = alt.Y(
            f"{column}:Q", title=_BY_EPOCH[column], scale=alt.Scale(zero=column in _FROM_ZERO)
        )
        return (
            _chart("epochs")
            .mark_line(point=True)
            .encode(
                x=alt.X(f"{x}:Q", title=title, axis=_WHOLE, scale=alt.Scale(zero=x == "seconds")),
                y=y,
                color=alt.Color(
                    "run:N", title=None, scale=alt.Scale(domain=[r.name for r in runs])
                ),
                # Curves that coincide, such as those of one model on several numbers of replicas.
                opacity=alt.when(picked).then(alt.value(0.7)).otherwise(alt.value(0.07)),
                tooltip=["run:N", "epoch:Q", f"{column}:Q", "seconds:Q"],
            )
        )

    views: list[Any] = [line(name, "epoch", "Epoch") for name in names]
    views[0] = views[0].add_params(picked)  # of the legend that all share
    targets = {run.accuracy_target for run in runs} - {None}
    marks = [{"at": target, "label": f"target {target:g}"} for target in targets if target]
    if names[0] == "val_accuracy":
        rule = _chart("target").encode(y="at:Q")
        label = rule.mark_text(align="left", baseline="bottom", dx=4, dy=-3)
        over_time = line("val_accuracy", "seconds", "Seconds of training")
        target = rule.mark_rule(strokeDash=[5, 4])
        views.insert(1, alt.layer(target, label.encode(x=alt.value(0), text="label:N"), over_time))
    return [
        Figure(
            id="learning-curves",
            title="Learning curves",
            caption="One line per run, one point per epoch. Click a run's name to show it alone,"
            " with Shift to add it. Other seeds give other lines.",
            chart=_beside(views),
            data={
                "epochs": [
                    {"run": run.name}
                    | {name: _short(row.get(name)) for name in ("epoch", "seconds", *names)}
                    for run in runs
                    for row in run.epochs
                ],
                "target": marks if len(marks) == 1 else [],
            },
        )
    ]


def run_speeds(runs: Sequence[RunRecord]) -> list[Figure]:
    """Draw the speeds of runs, each with a name of its own."""
    rows = [
        {
            "run": run.name,
            "images_per_sec": run.images_per_sec,
            "low": min(run.rates),
            "high": max(run.rates),
            "measured": "epochs after the first" if run.is_warm else "first epoch, with tracing",
        }
        for run in runs
        if run.rates
    ]
    if not rows:
        return []
    title = "Images per second"
    base = _chart("speeds").encode(
        y=alt.Y("run:N", title=None, sort=[run.name for run in runs]),
        tooltip=["run:N", "images_per_sec:Q", "low:Q", "high:Q", "measured:N"],
    )
    ends = base.mark_rule(strokeWidth=3, opacity=0.45)
    points = base.mark_point(filled=True, size=100, opacity=1)
    chart = alt.layer(
        ends.encode(x=alt.X("low:Q", title=title, scale=alt.Scale(zero=True)), x2="high:Q"),
        points.encode(
            x=alt.X("images_per_sec:Q", title=title),
            color=alt.Color("measured:N", title=None),
            shape=alt.Shape("measured:N", title=None),
        ),
    )
    return [
        Figure(
            id="run-speeds",
            title="Speed of each run",
            caption="Median of the epochs after the first, which includes the tracing of the step;"
            " bars: slowest to fastest epoch.",
            chart=chart.properties(width=680, height=max(90, 30 * len(rows))),
            data={"speeds": rows},
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
    varied = [name for name in columns if len({one[name] for one in settings}) > 1]
    return [
        ", ".join(f"{name.replace('_', ' ')} {setting(one[name])}" for name in varied) or "measured"
        for one in settings
    ]


def _ends(
    column: str, spread: Mapping[str, float | None] | None, factor: float = 1.0
) -> dict[str, float | None]:
    """A spread as three columns, of which unknown ends are the median: they have no bar."""
    found = {key: finite(value) for key, value in (spread or {}).items()}
    middle = found.get("median")
    if middle is None:
        return dict.fromkeys((column, f"{column}_low", f"{column}_high"))
    low, high = (middle if found[end] is None else found[end] for end in ("low", "high"))
    values = {column: middle, f"{column}_low": low, f"{column}_high": high}
    return {name: (value or 0.0) * factor for name, value in values.items()}


def _series_view(
    x: alt.X,
    column: str,
    title: str,
    layers: Iterable[str],
    *,
    zero: bool = True,
    joined: bool = True,
) -> Any:
    """The data `medians` with bars, the faint single `points` and the `dashed` lines."""
    y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=zero))
    colour = alt.Color("series:N", title=None, legend=alt.Legend(symbolType="circle"))

    def layer(data: str) -> alt.Chart:
        tooltip = ["series:N", "x:Q", f"{column}:Q"]
        return _chart(data).encode(x=x, y=y, color=colour, tooltip=tooltip)

    medians = layer("medians")
    bars = medians.mark_rule(strokeWidth=3, opacity=0.4).encode(
        y=alt.Y(f"{column}_low:Q", title=title), y2=f"{column}_high:Q"
    )
    found = [bars, medians.mark_point(filled=True, size=90)]
    if joined:
        found.append(medians.mark_line(opacity=0.7))
    if "dashed" in layers:
        found.append(layer("dashed").mark_line(strokeDash=[6, 4], strokeWidth=1.5))
    if "points" in layers:
        found.append(layer("points").mark_point(filled=True, size=40, opacity=0.4))
    return alt.layer(*found)


def _measured_axis(title: str, values: Iterable[float], *, log: bool) -> alt.X:
    """A horizontal axis with a tick at every value that was measured."""
    kind: dict[str, Any] = {"type": "log", "base": 2} if log else {"zero": False}
    scale = alt.Scale(**kind, nice=False, padding=16)
    axis = alt.Axis(values=sorted(set(values)), format=",.6~g")
    return alt.X("x:Q", title=title, scale=scale, axis=axis)


def throughput_figures(rows: Sequence[Row], summary: Mapping[str, Any]) -> list[Figure]:
    """Draw a throughput sweep: speed and step time by batch, with the fit.

    Args:
        rows: The measurements.
        summary: What `ThroughputSweep.summarize` returned.
    """
    points = summary["points"]
    if not points:
        return []
    names = series_names(points, ["replicas"])
    series = dict(zip((one["replicas"] for one in points), names, strict=True))
    data: dict[str, list[dict[str, Any]]] = {
        "medians": [
            {"series": series[one["replicas"]], "x": one["batch_size"]}
            | _ends("images_per_sec", one["images_per_sec"])
            | _ends("milliseconds", one["step_seconds"], 1e3)
            for one in points
        ],
        "points": [
            {"series": series[row["replicas"]], "x": row["batch_size"]}
            | {"images_per_sec": row["images_per_sec"]}
            | {"milliseconds": 1e3 * row["images_per_step"] / row["images_per_sec"]}
            for row in rows
        ],
        "dashed": [],
    }
    for fit in summary["fits"]:
        line = StepTimeFit(
            overhead_seconds=fit["overhead_seconds"]["median"],
            images_per_sec=fit["images_per_sec"]["median"],
        )
        own = [one["batch_size"] for one in points if one["replicas"] == fit["replicas"]]
        for batch in np.geomspace(min(own), max(own), 40):
            images = batch * fit["replicas"]
            speed = line.predict(images)
            data["dashed"].append(
                {"series": series[fit["replicas"]], "x": _short(batch)}
                | {"images_per_sec": _short(speed), "milliseconds": _short(1e3 * images / speed)}
            )
    x = _measured_axis("Batch per replica, images", (one["batch_size"] for one in points), log=True)
    views = [
        _series_view(x, "images_per_sec", "Images per second", data, joined=False),
        _series_view(x, "milliseconds", "Milliseconds per step", data, joined=False),
    ]
    caption = (
        "Strong points: medians; bars: slowest to fastest epoch; dashed: the fitted step time, a"
        " fixed part and one for each image."
    )
    return [
        Figure(
            id="throughput",
            title="Speed against the batch",
            caption=caption,
            chart=_beside(views),
            data=data,
        )
    ]


_SETTING = ("batch_size", "replicas", "lr_rule")


def accuracy_figures(rows: Sequence[Row], summary: Mapping[str, Any]) -> list[Figure]:
    """Draw an accuracy sweep: time to the target and best accuracy by global batch.

    Args:
        rows: Of the points that are done.
        summary: What `AccuracySweep.summarize` returned.
    """
    groups = summary["groups"]
    if not groups:
        return []
    names = series_names(groups, ["lr_rule", "replicas"])
    series = {tuple(one[c] for c in _SETTING): n for one, n in zip(groups, names, strict=True)}
    best = "best_val_accuracy"
    data: dict[str, list[dict[str, Any]]] = {
        "medians": [
            {"series": name, "x": one["global_batch"]}
            | _ends("seconds", one["seconds_to_target"])
            | _ends("epochs", one["epochs_to_target"])
            | _ends(best, one[best])
            for name, one in zip(names, groups, strict=True)
        ],
        "points": [
            {"series": series[key], "x": row["global_batch"], best: row[best]}
            | {unit: _reached(row, unit) for unit in ("seconds", "epochs")}
            for key, group in grouped(rows, *_SETTING).items()
            for row in group
        ],
    }
    x = _measured_axis("Global batch, images", (one["global_batch"] for one in groups), log=True)
    titles = {"seconds": "Seconds to the target", "epochs": "Epochs to the target"}
    titles |= {best: "Best validation accuracy"}
    views = [
        _series_view(x, column, title, data, zero=column != best)
        for column, title in titles.items()
        if any(row[column] is not None for row in data["points"])
    ]
    target = summary["target_accuracy"]
    figure = Figure(
        id="accuracy",
        title="Accuracy, and time to accuracy" + ("" if target is None else f" above {target:g}"),
        caption="Times: medians with 95 % intervals, where runs that never reached the target count"
        " as such (Kaplan and Meier). Accuracy: median with min to max. Faint: single runs.",
        chart=_beside(views),
        data=data,
    )
    return [figure] if views else []


def _reached(row: Row, unit: str) -> float | None:
    time, there = row_to_target(row, unit)
    return time if there else None


def scaling_figures(summary: Mapping[str, Any]) -> list[Figure]:
    """Draw a scaling sweep: efficiency and speed by replicas, with the ideal.

    Args:
        summary: What `ScalingSweep.summarize` returned.
    """
    points = summary["points"]
    if not points:
        return []
    medians, ideal = [], []
    base = {
        one["mode"]: one["images_per_sec"]["median"] / one["replicas"]
        for one in points
        if one["replicas"] == summary["base_replicas"]
    }
    for name, one in zip(series_names(points, ["mode"]), points, strict=True):
        place = {"series": name, "x": one["replicas"]}
        speeds = _ends("images_per_sec", one["images_per_sec"])
        medians.append({**place, **speeds, **_ends("efficiency", one["efficiency"])})
        if one["mode"] in base:
            best = base[one["mode"]] * one["replicas"]
            ideal.append({**place, "images_per_sec": best, "efficiency": 1.0})
    data = {"medians": medians, "dashed": ideal}
    x = _measured_axis("Replicas", (one["replicas"] for one in points), log=False)
    views = [
        _series_view(x, "efficiency", "Efficiency", data),
        _series_view(x, "images_per_sec", "Images per second", data),
    ]
    return [
        Figure(
            id="scaling",
            title="Speed on more replicas",
            caption="Medians; bars: slowest to fastest round. Efficiency: speed per replica"
            f" relative to {summary['base_replicas']:g} of the same round; dashed: ideal.",
            chart=_beside(views),
            data=data,
        )
    ]


# Searches


_OUTCOMES = ("trial", "missed the target", "failed")
_SHAPES = ("circle", "triangle-up", "cross")


def search_figure(
    objective: str,
    trials: Sequence[Mapping[str, Any]],
    correlations: Mapping[str, float | None],
    *,
    better: Callable[..., Any],
    log: Sequence[str] = (),
) -> Figure:
    """Draw a search: the scores by trial, then by each hyperparameter that varied.

    Args:
        objective: The metric that the scores are of.
        trials: The trials that ended: their number `trial`, their `outcome` (`"trial"`, `"missed
            the target"` or `"failed"`), their `score` and `values`, the hyperparameters.
        correlations: The rank correlation of each hyperparameter with the score, where known.
        better: `max` or `min`.
        log: The hyperparameters that were sampled on a logarithmic scale.
    """
    values = {
        name: [_plain(trial["values"][name]) for trial in trials if name in trial["values"]]
        for name in correlations
    }
    varied = [name for name in values if len({str(t["values"].get(name)) for t in trials}) > 1]
    # A hyperparameter's name may contain what Vega reads as a path: columns are numbered.
    columns = {name: f"value{number}" for number, name in enumerate(varied)}
    rows: list[dict[str, Any]] = []
    best: float | None = None
    for trial in trials:
        score, own = finite(trial["score"]), trial["values"]
        found = [one for one in (best, score) if one is not None]
        best = better(found) if found else None
        row = {"trial": trial["trial"], "outcome": trial["outcome"], "score": score, "best": best}
        rows.append(row | {to: _plain(own[name]) for name, to in columns.items() if name in own})
    # Penalties are so much larger than scores that they would hide how these differ.
    missed = any(row["outcome"] == "missed the target" for row in rows)
    scale = alt.Scale(type="log") if missed else alt.Scale(zero=False)
    y = alt.Y("score:Q", title=objective, scale=scale)

    def points(x: alt.X, column: str) -> list[alt.Chart]:
        colours = alt.Scale(domain=_OUTCOMES, range=_COLOURS[:5:2])
        shapes = alt.Scale(domain=_OUTCOMES, range=_SHAPES)
        base = (
            _chart("trials")
            .transform_filter(f"isValid(datum.{column})")
            .mark_point(filled=True, size=60, opacity=0.8)
            .encode(
                x=x,
                color=alt.Color("outcome:N", title=None, scale=colours),
                shape=alt.Shape("outcome:N", title=None, scale=shapes),
                tooltip=["trial:Q", "score:Q", "outcome:N"],
            )
        )
        failed = base.transform_filter("datum.outcome === 'failed'").encode(y=alt.value("height"))
        return [base.transform_filter("isValid(datum.score)").encode(y=y), failed]

    by_trial = alt.X("trial:Q", title="Trial", axis=_WHOLE)
    so_far = _chart("trials").mark_line(interpolate="step-after", color="gray")
    views = [alt.layer(so_far.encode(x=by_trial, y=alt.Y("best:Q")), *points(by_trial, "trial"))]
    for name, column in columns.items():
        known = correlations[name]
        title = name if known is None else f"{name} (rank correlation {known:+.2f})"
        x = _value_axis(column, title, values[name], log=name in log)
        views.append(alt.layer(*points(x, column)))
    return Figure(
        id="trials",
        title=f"{objective} of the trials",
        caption="One point per trial; gray: the best so far. Crosses at the lower edge failed;"
        " triangles missed the target, which counts as ten times the time budget or more. A rank"
        " correlation looks at one hyperparameter at a time: take it as a hint.",
        chart=_beside(views),
        data={"trials": rows},
    )


def _plain(value: Any) -> Any:
    """A number as it is, anything else as text."""
    number = None if isinstance(value, bool) else finite(value)
    return str(value) if number is None else number


def _value_axis(column: str, title: str, values: Sequence[Any], *, log: bool) -> alt.X:
    if not all(isinstance(value, int | float) for value in values):
        return alt.X(f"{column}:N", title=title)
    is_log = log and min(values) > 0
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
        steepest: The one at which the average falls fastest, marked by another.
    """
    found = [value for value in losses if math.isfinite(value)]
    # A batch of an exploded loss would leave the rest a flat line.
    average = [value for value in smoothed if math.isfinite(value)]
    top = max(average[: max(len(average) * 9 // 10, 1)], default=1.0)
    bottom = min(found, default=0.0)
    room = 0.1 * (top - bottom or 1.0)
    log, axis = alt.Scale(type="log"), alt.Axis(format="~e")
    x = alt.X("rate:Q", title="Learning rate", scale=log, axis=axis)
    scale = alt.Scale(domain=[bottom - room, top + room], clamp=True, nice=False)
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
        chart=_beside([chart]),
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
