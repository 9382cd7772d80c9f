"""Curves over the epochs of runs: learning, the gaps of batch norms, the gradient noise scale."""

from collections.abc import Sequence
from typing import Any

from ..runs.run_record import RunRecord
from ..runs.text import count
from .coincidence import coinciding
from .figure import Figure, Variant
from .formatting import accuracy
from .reference_line import ReferenceLine
from .run_curve import RunColumn, curve_of, run_chart

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
