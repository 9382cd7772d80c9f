"""The tables of a report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..charts.tables import MISSING, ResultsTable, accuracy, rate, seconds
from ..runs.record import RunRecord
from ..runs.text import sanitize_text
from ..training.settings import model_name
from .inputs import CsvMeasurements, Skipped, differing, settings_of


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its text.
        kind: `""`, `"number"`, `"words"` (a sentence, may be long), `"path"`, `"changed"` (differs
            from the baseline) or `"run"`.
    """

    text: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        columns: The header.
        rows: The cells, each row as long as the header.
        note: A sentence below it.
    """

    title: str
    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def header(words: str, *, text_columns: int = 1) -> list[Cell]:
    """The names between semicolons; those after the first `text_columns` are of numbers."""
    names = words.split("; ")
    return [Cell(name, "number" if at >= text_columns else "") for at, name in enumerate(names)]


# Up to so many runs stand side by side; more stand below each other.
_SIDE_BY_SIDE = 4


def diff_table(runs: Sequence[RunRecord], baseline: RunRecord) -> Table | None:
    """Make a table of the settings that differ from the baseline's; `None` if none do."""
    ordered = [baseline, *(run for run in runs if run is not baseline)]
    settings = [settings_of(run) for run in ordered]
    names = differing(settings)
    if not names:
        return None
    grid = [[_compared(one.get(name), settings[0].get(name)) for one in settings] for name in names]
    heads = [Cell(run.name, "run") for run in ordered]
    if len(ordered) <= _SIDE_BY_SIDE:
        head = [Cell("Setting"), *heads]
        rows = [[Cell(name), *line] for name, line in zip(names, grid, strict=True)]
    else:
        head = [Cell("Run"), *(Cell(name) for name in names)]
        rows = [[run, *line] for run, line in zip(heads, zip(*grid, strict=True), strict=True)]
    return Table(
        title="Settings that differ",
        columns=head,
        rows=rows,
        note=f"Baseline: {baseline.name}. Values that differ from the baseline's are marked.",
    )


def _compared(value: str | None, baseline: str | None) -> Cell:
    return Cell(MISSING if value is None else value, "changed" if value != baseline else "")


def results_table(table: ResultsTable, *, capitalize: bool = True) -> Table:
    """Convert a table of results; columns with a cell that begins with a digit are of numbers.

    Args:
        table: The table.
        capitalize: Whether its heading is of words; names of settings stay as they are.
    """
    kinds = [
        "number" if any(text.lstrip("-")[:1].isdigit() for text in column) else ""
        for column in zip(*table.rows, strict=True)
    ]
    heads = [name[:1].upper() + name[1:] if capitalize else name for name in table.columns]
    return Table(
        title=table.title,
        columns=[Cell(name, kind) for name, kind in zip(heads, kinds, strict=True)],
        rows=[
            [Cell(text, kind) for text, kind in zip(row, kinds, strict=True)] for row in table.rows
        ],
        note=table.note,
    )


def not_shown_table(title: str, rows: Sequence[tuple[str, str]]) -> Table | None:
    """Make a table of points or trials, each with the reason; `None` if there are none."""
    if not rows:
        return None
    return Table(
        title=title,
        columns=header("Name; Reason", text_columns=2),
        rows=[[Cell(name), Cell(reason, "words")] for name, reason in rows],
    )


def measurements_table(table: CsvMeasurements) -> Table:
    """Make a table of the measurements of a CSV file."""
    rows = [
        [
            Cell(f"{row['batch_size']:,g}"),
            Cell(f"{row['replicas']:,g}", "number"),
            Cell(rate(row["images_per_sec"]), "number"),
        ]
        for row in table.rows
    ]
    columns = header("Batch per replica; Replicas; Images/s")
    return Table(title="Measurements", columns=columns, rows=rows)


def skipped_table(skipped: Sequence[Skipped]) -> Table:
    """Make a table of what the report does not show, with the reasons."""
    rows = [[Cell(one.path, "path"), Cell(one.reason, "words")] for one in skipped]
    columns = header("Folder or file; Reason", text_columns=2)
    return Table(title="Folders and files", columns=columns, rows=rows)


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
