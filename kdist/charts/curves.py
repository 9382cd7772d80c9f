"""Curves over the epochs of runs: learning, batch norm's gaps, the gradient's noise."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from ..runs.run_record import RunRecord, finite
from .figure import Figure, Variant
from .formatting import accuracy
from .style import hidden_param, line_dash, run_colour, shown_runs

EPOCHS = "epochs"
"""The name of the data."""

# Column, label, format, whether the axis begins at 0.
_LEARNING = (
    ("val_accuracy", "Validation accuracy", ".3~f", False),
    ("accuracy", "Training accuracy", ".3~f", False),
    ("val_loss", "Validation loss", ",.4~g", False),
    ("loss", "Training loss", ",.4~g", False),
    ("learning_rate", "Learning rate", ",.4~g", True),
    ("images_per_sec", "Images per second", ",.0f", True),
)
_GAPS = (
    ("batch_norm_gap", "Moving statistics against a batch", ".2f", True),
    ("batch_norm_replica_gap", "Replicas against replica 0", ".2f", True),
)
_NOISE = "gradient_noise_scale"
_COLUMNS = ("epoch", "seconds", *(c for c, *_ in (*_LEARNING, *_GAPS)), _NOISE, "global_batch")


def epoch_rows(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """The data: a row for each epoch of each run, rounded to what a chart can show."""
    columns = [name for name in _COLUMNS if any(run.logged(name) for run in runs)]
    return [
        {"run": run.name} | {name: _short(epoch.get(name)) for name in columns}
        for run in runs
        for epoch in run.epochs
    ]


def curve_figures(runs: Sequence[RunRecord]) -> list[Figure]:
    """The figures for which any run logged values."""
    names = [run.name for run in runs]
    epochs = _ticks(runs)
    figures = []
    learning = [spec for spec in _LEARNING if any(run.logged(spec[0]) for run in runs)]
    if learning:
        figures.append(
            Figure(
                id="learning-curves",
                title="Learning curves",
                caption="One line per run, one point per epoch. A line is one draw of weights and"
                " image order: runs with several seeds show how much of a difference is chance.",
                alt=f"Line chart by epoch. {_in_words(runs)}",
                variants=[Variant(label=s[1], chart=_curve(names, epochs, *s)) for s in learning],
                by_run=True,
            )
        )
    if any(run.logged("val_accuracy") for run in runs):
        figures.append(_over_time(runs, names, epochs))
    gaps = [spec for spec in _GAPS if any(run.logged(spec[0]) for run in runs)]
    if gaps:
        figures.append(
            Figure(
                id="batch-norm-gaps",
                title="Batch norm: how far moving statistics are off",
                caption="The worst layer, in standard deviations or log variance. 0.2 to 0.3 is"
                " what small batches show by chance; the dashed line, 0.5, is where"
                " BatchNormMonitor speaks up.",
                alt="Line chart of batch norm gaps by epoch. " + _last(runs, gaps[0][0]),
                variants=[
                    Variant(
                        label=s[1],
                        chart=_curve(names, epochs, *s, rule=0.5 if s is _GAPS[0] else 0.1),
                    )
                    for s in gaps
                ],
                by_run=True,
            )
        )
    if any(run.logged(_NOISE) for run in runs):
        noise = (_NOISE, "Images", ",.4~g", True)
        figures.append(
            Figure(
                id="noise-scale",
                title="Gradient noise scale, in images",
                caption="The global batch beyond which more replicas stop paying. An order of"
                " magnitude, not a figure: batch norm and dropout are outside its theory. It grows"
                " while a model learns, so the last epochs count.",
                alt="Line chart of the gradient noise scale by epoch. " + _last(runs, _NOISE),
                variants=[Variant(label="Images", chart=_curve(names, epochs, *noise))],
                by_run=True,
            )
        )
    return figures


def _curve(
    names: Sequence[str],
    epochs: Sequence[int],
    column: str,
    label: str,
    number: str,
    zero: bool,
    *,
    x: Any = None,
    rule: float | None = None,
) -> Any:
    x = x or alt.X("epoch:Q", title="Epoch", axis=alt.Axis(values=epochs, format="d"))
    lines = shown_runs(alt.Chart(alt.NamedData(name=EPOCHS))).mark_line(
        point=alt.OverlayMarkDef(size=45)
    )
    lines = lines.encode(
        x=x,
        y=alt.Y(
            f"{column}:Q", title=label, scale=alt.Scale(zero=zero), axis=alt.Axis(format=number)
        ),
        color=run_colour(names),
        strokeDash=line_dash("run", names, legend=None),
        tooltip=[
            alt.Tooltip("run:N", title="Run"),
            alt.Tooltip("epoch:Q", title="Epoch"),
            alt.Tooltip(f"{column}:Q", title=label),
            alt.Tooltip("seconds:Q", title="Seconds", format=",.1f"),
        ],
    )
    layers = [lines] if rule is None else [_rule(rule), lines]
    return alt.layer(*layers).add_params(hidden_param()).properties(height=300)


def _rule(value: float) -> Any:
    chart = alt.Chart(alt.InlineData(values=[{"at": value}]))
    return chart.mark_rule(strokeDash=[5, 4]).encode(y=alt.Y("at:Q"))


def _over_time(runs: Sequence[RunRecord], names: Sequence[str], epochs: Sequence[int]) -> Figure:
    targets = {finite(run.settings.get("target_accuracy")) for run in runs} - {None}
    target = next(iter(targets)) if len(targets) == 1 else None
    line = "" if target is None else f" The dashed line is the target, {target:g}."
    x = alt.X("seconds:Q", title="Seconds of training", scale=alt.Scale(zero=True))
    chart = _curve(names, epochs, *_LEARNING[0], x=x, rule=target)
    met = [f"{run.name} after {run.met.seconds:.1f} seconds" for run in runs if run.met]
    words = f"The target was reached by {', '.join(met[:8])}." if met else _in_words(runs)
    return Figure(
        id="accuracy-over-time",
        title="Validation accuracy against time",
        caption=f"Wall-clock time since training began, validation included.{line} Compare"
        " runs of one machine only, and with nothing else running on it.",
        alt=f"Line chart of the validation accuracy against seconds. {words}",
        variants=[Variant(label="Validation accuracy", chart=chart)],
        by_run=True,
    )


def _ticks(runs: Sequence[RunRecord]) -> list[int]:
    """Whole epochs for the axis, ten or so."""
    most = max((int(run.values("epoch")[-1] or 0) for run in runs if run.epochs), default=0)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, most) if step * 12 >= most)
    return [1, *range(step, most + 1, step)] if step > 1 else list(range(1, most + 1))


def _in_words(runs: Sequence[RunRecord]) -> str:
    parts = []
    for run in runs[:8]:
        values = [value for value in run.values("val_accuracy") if value is not None]
        if values:
            parts.append(
                f"{run.name}: validation accuracy from {accuracy(values[0])} to"
                f" {accuracy(values[-1])} in {len(values)} epochs"
            )
    return "; ".join(parts) + _and_more(runs)


def _last(runs: Sequence[RunRecord], column: str) -> str:
    parts = []
    for run in [run for run in runs if run.logged(column)][:8]:
        last = [value for value in run.values(column) if value is not None][-1]
        parts.append(f"{run.name}: {last:.3g} after the last epoch")
    return "; ".join(parts) + _and_more(runs)


def _and_more(runs: Sequence[RunRecord]) -> str:
    return f"; and {len(runs) - 8} more runs." if len(runs) > 8 else "."


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
