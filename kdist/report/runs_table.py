"""The table of runs: their results, then their settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..charts.formatting import MISSING, accuracy, rate, seconds
from ..runs.run_record import RunRecord
from ..runs.text import sanitize_text
from ..training.model_name import model_name
from .table import Cell, Table

SHARED_CORES = "shared cores"
"""Marks replicas that are logical CPUs."""


@dataclass(frozen=True)
class _Column:
    """A column: its header, its text for a run, and its kind of cells."""

    name: str
    text: Callable[[RunRecord], str]
    kind: str = "number"
    is_setting: bool = False


def runs_table(runs: Sequence[RunRecord]) -> Table:
    """Make a table of the results and settings of runs, a line each.

    Of several runs, settings that are the same in all are not repeated in each line.
    """
    texts = {column.name: [column.text(run) for run in runs] for column in _COLUMNS}
    columns = [
        column
        for column in _COLUMNS
        if not column.is_setting or len(runs) == 1 or len({*texts[column.name]} - {MISSING}) > 1
    ]
    rows = [
        [Cell(run.name, "run"), *(Cell(texts[c.name][at], c.kind) for c in columns)]
        for at, run in enumerate(runs)
    ]
    heads = [Cell("Run"), *(Cell(column.name, column.kind) for column in columns)]
    return Table(title="Results", columns=heads, rows=rows, note=_note(runs))


def _number(run: RunRecord, fact: str, form: str = ",.0f") -> str:
    value = run.fact(fact)
    return MISSING if value is None else format(value, form)


def _speed(run: RunRecord) -> str:
    cold = " (first epoch)" if run.rates and not run.is_warm else ""
    return rate(run.images_per_sec) + cold


def _time_to_target(run: RunRecord) -> str:
    if run.met:
        return seconds(run.met.seconds)
    return "not reached" if run.logged("val_accuracy") else MISSING


def _replicas(run: RunRecord) -> str:
    cores = f", {SHARED_CORES}" if run.shares_cores else ""
    return f"{_number(run, 'replicas')}{run.of_workers}{cores}"


_COLUMNS = (
    _Column("Best val. accuracy", lambda run: accuracy(run.best[0] if run.best else None)),
    _Column("Last", lambda run: accuracy(run.fact("val_accuracy"))),
    _Column("Images/s", _speed),
    _Column("Time to target", _time_to_target),
    _Column("Total time", lambda run: seconds(run.fact("seconds"))),
    _Column("Epochs", lambda run: f"{len(run.epochs):,}"),
    _Column("Status", lambda run: run.status.detail, ""),
    _Column("Replicas", _replicas, is_setting=True),
    _Column("Global batch", lambda run: _number(run, "global_batch"), is_setting=True),
    _Column("Learning rate", lambda run: _number(run, "learning_rate", "g"), is_setting=True),
    _Column("Model", lambda run: model_name(run.settings), "", is_setting=True),
    _Column("Optimizer", lambda run: str(run.settings.get("optimizer", MISSING)), "", True),
    _Column("Data", lambda run: str(run.summary.get("data", MISSING)), "", is_setting=True),
    _Column("Folder", lambda run: sanitize_text(str(run.path)), "path"),
)


def _note(runs: Sequence[RunRecord]) -> str:
    words = (
        "Images/s: median of the epochs after the first, which includes the tracing of the step."
        " Time to target: the first epoch of those in a row that beat the run's own target."
    )
    if not any(run.is_warm for run in runs):
        words = words[words.index("Time to target") :]
    if any(run.rates and not run.is_warm for run in runs):
        words += " A first epoch alone includes tracing: its speed is no measurement."
    return words
