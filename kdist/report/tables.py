"""The report's tables of settings, results, measurements and skipped folders."""

from collections.abc import Sequence

from ..charts.formatting import MISSING, rate
from ..charts.results_table import ResultsTable
from ..runs.run_record import RunRecord
from .csv_measurements import CsvMeasurements
from .settings_diff import differing, settings_of
from .skipped import Skipped
from .table import Cell, Table, header

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
