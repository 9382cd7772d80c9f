"""The report's tables, as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..charts.formatting import MISSING, accuracy, rate, seconds
from ..runs.run_record import RunRecord
from ..sweep.experiment import ResultsTable
from .csv_measurements import CsvMeasurements
from .inputs import LeftOut
from .settings_diff import differing, run_settings

# Up to so many runs stand side by side; more stand below each other.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its words.
        kind: `""`, `"number"`, `"words"` (may be long), `"changed"` (differs from the baseline) or
            `"run"`.
    """

    text: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        columns: The heading.
        rows: The cells, each row as long as the heading.
        note: A sentence below it.
    """

    title: str
    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def _heading(words: str, *, after: int = 1) -> list[Cell]:
    """The names between semicolons; those after the first are of numbers."""
    names = words.split("; ")
    return [Cell(name, "number" if at >= after else "") for at, name in enumerate(names)]


def runs_table(runs: Sequence[RunRecord]) -> Table:
    """What was run and what it came to, a line each."""
    rows = []
    for run in runs:
        numbers = (
            f"{run.fact('replicas') or 0:,.0f}",
            f"{run.fact('global_batch') or 0:,.0f}",
            f"{run.fact('learning_rate') or 0:g}",
            f"{len(run.epochs):,}",
            accuracy(run.best[0] if run.best else None),
            accuracy(run.fact("val_accuracy")),
            rate(run.images_per_sec),
            seconds(run.met.seconds) if run.met else "not reached",
            seconds(run.fact("seconds")),
        )
        about = [
            Cell(run.name, "run"),
            Cell(_model(run)),
            Cell(str(run.summary.get("data", MISSING))),
        ]
        about.append(Cell("interrupted" if run.summary.get("interrupted") else "complete"))
        rows.append([*about, *(Cell(number, "number") for number in numbers)])
    return Table(
        title="Runs",
        columns=_heading(
            "Run; Model; Data; Training; Replicas; Global batch; Learning rate; Epochs;"
            " Best val. accuracy; Last; Images/s; Time to target; Total time",
            after=4,
        ),
        rows=rows,
        note="Images/s: median of the epochs after the first. Time to target: the first epoch of"
        " those in a row that beat the run's own target.",
    )


def _model(run: RunRecord) -> str:
    depth, width = run.settings.get("depth"), run.settings.get("width")
    optimizer = run.settings.get("optimizer", "")
    return f"WRN-{depth}-{width}, {optimizer}" if depth and width else str(optimizer)


def diff_table(runs: Sequence[RunRecord], baseline: RunRecord) -> Table | None:
    """The settings that differ, those unlike the baseline's marked; `None` where none do."""
    ordered = [baseline, *(run for run in runs if run is not baseline)]
    settings = [run_settings(run) for run in ordered]
    names = differing(settings)
    if not names:
        return None
    heads = [Cell(baseline.name, "run"), *(Cell(run.name, "run") for run in ordered[1:])]
    columns = [
        [Cell(one.get(name, MISSING), "changed" if one.get(name) != settings[0].get(name) else "")]
        for name in names
        for one in settings
    ]
    cells = [cell for (cell,) in columns]
    grid = [cells[at : at + len(ordered)] for at in range(0, len(cells), len(ordered))]
    if len(ordered) <= _SIDE_BY_SIDE:
        head = [Cell("Setting"), *heads]
        rows = [[Cell(name), *line] for name, line in zip(names, grid, strict=True)]
    else:
        head = [Cell("Run"), *(Cell(name) for name in names)]
        rows = [[run, *line] for run, line in zip(heads, zip(*grid, strict=True), strict=True)]
    return Table(
        title="Where settings differ",
        columns=head,
        rows=rows,
        note=f"Baseline: {baseline.name}. Values unlike the baseline's are marked.",
    )


def results_table(table: ResultsTable) -> Table:
    """A sweep's table; columns with a cell that begins with a digit are of numbers."""
    kinds = [
        "number" if any(text.lstrip("-")[:1].isdigit() for text in column) else ""
        for column in zip(*table.rows, strict=True)
    ]
    heads = [name[:1].upper() + name[1:] for name in table.columns]
    return Table(
        title=table.title,
        columns=[Cell(name, kind) for name, kind in zip(heads, kinds, strict=True)],
        rows=[
            [Cell(text, kind) for text, kind in zip(row, kinds, strict=True)] for row in table.rows
        ],
        note=table.note,
    )


def failed_table(rows: Sequence[Mapping[str, object]]) -> Table | None:
    """The points that failed and why; `None` where none did."""
    if not rows:
        return None
    cells = [
        [Cell(str(row["name"])), Cell(str(row["error"] or "no reason given"), "words")]
        for row in rows
    ]
    return Table(title="Points that failed", columns=_heading("Point; Error", after=2), rows=cells)


def measurements_table(typed: CsvMeasurements) -> Table:
    """The numbers as they were typed in."""
    rows = [
        [
            Cell(f"{row['batch_size']:,g}"),
            Cell(f"{row['replicas']:,g}", "number"),
            Cell(rate(row["images_per_sec"]), "number"),
        ]
        for row in typed.rows
    ]
    columns = _heading("Batch per replica; Replicas; Images/s")
    return Table(title="Numbers", columns=columns, rows=rows)


def left_out_table(left_out: Sequence[LeftOut]) -> Table:
    """What the report does not show, and why."""
    rows = [[Cell(one.path), Cell(one.reason, "words")] for one in left_out]
    return Table(title="Left out", columns=_heading("Folder or file; Why", after=2), rows=rows)
