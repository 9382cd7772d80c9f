"""The report's tables of settings, points, trials, measurements and skipped folders."""

from collections.abc import Sequence
from typing import Any

from ..charts.formatting import MISSING, rate, setting
from ..runs.run_record import RunRecord, finite
from ..sweep.experiment import ResultsTable
from .csv_measurements import CsvMeasurements
from .search_record import SearchRecord
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


def results_table(table: ResultsTable) -> Table:
    """Convert a sweep's table; columns with a cell that begins with a digit are of numbers."""
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


def not_shown_table(title: str, rows: Sequence[tuple[str, str]]) -> Table | None:
    """Make a table of points or trials, each with the reason; `None` if there are none."""
    if not rows:
        return None
    return Table(
        title=title,
        columns=header("Name; Reason", text_columns=2),
        rows=[[Cell(name), Cell(reason, "words")] for name, reason in rows],
    )


def trials_table(search: SearchRecord) -> Table | None:
    """Make a table of the trials of a search, best first; `None` before the first one began."""
    ranked = search.ranked
    trials = [*ranked, *(trial for trial in search.trials if trial.score is None)]
    if not trials:
        return None
    names = list(dict.fromkeys(name for trial in trials for name in trial.values))
    measured = [
        name
        for name in ("val_accuracy", "seconds", "epochs")
        if name != search.objective.metric and any(name in trial.metrics for trial in trials)
    ]
    rows = []
    for trial in trials:
        score = trial.status.lower() if trial.score is None else _short(trial.score)
        cells = [score, *(_short(trial.metrics.get(name)) for name in measured)]
        missed = ", missed the target" if trial.score is not None and not trial.reached else ""
        values = [_short(trial.values[name]) if name in trial.values else MISSING for name in names]
        rows.append(
            [
                Cell(f"trial {trial.trial_id}"),
                *(
                    Cell(cell + (missed if at == 0 else ""), "number")
                    for at, cell in enumerate(cells)
                ),
                *(Cell(value) for value in values),
            ]
        )
    heads = [Cell("Trial"), *(Cell(n, "number") for n in (search.objective.metric, *measured))]
    return Table(
        title="Trials",
        columns=[*heads, *(Cell(name) for name in names)],
        rows=rows,
        note=_trials_note(search),
    )


def _trials_note(search: SearchRecord) -> str:
    note = f"Best first, by {search.objective.metric}; then the hyperparameters."
    if search.search.executions_per_trial > 1:
        note += f" Means over {search.search.executions_per_trial} runs per trial."
    if search.search.model is None:
        note += " Learning rates are those for one replica and the batch of the search."
    return note


def _short(value: Any) -> str:
    number = None if isinstance(value, bool) else finite(value)
    return f"{number:.4g}" if isinstance(value, float) and number is not None else setting(value)


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
