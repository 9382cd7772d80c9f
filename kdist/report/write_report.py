"""`write_report`: runs, sweeps and searches as a page with tables and charts.

`find_records.py` finds and reads the folders, `charts.py` draws SVG, `html_page.py` renders HTML.
"""

import contextlib
import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .. import __version__
from ..arguments import is_remote
from ..errors import UserError
from ..files import atomic_write, check_output_file, explain_write_errors, folder_for_files
from ..remote import local_records
from ..study.experiment import describe_shared_cores
from ..study.search_results import make_trials_table
from ..study.study_folder import Row
from ..study.tables import (
    MISSING,
    ResultsTable,
    format_accuracy,
    format_rate,
    format_seconds,
    format_setting,
)
from ..training.printed_lines import format_count
from ..training.run_record import RunRecord, as_finite
from ..training.settings import model_name
from .charts import Chart, Figure, Point, Series
from .find_records import (
    FoundRecords,
    SearchRecord,
    SweepRecord,
    compare_settings,
    find_records,
    is_point,
    name_data_set,
)
from .html_page import GENERATOR, Section, render_page

_FIRST_BYTES = 2000
_OUTPUT_HINT = "pass another --output"


def write_report(
    paths: Sequence[str], *, output: str | None = None
) -> tuple[Path, list[tuple[str, str]]]:
    """Write an HTML report of runs, sweeps and searches, at local or remote paths.

    An existing report at `output` is replaced. By default `report.html` is in the innermost folder
    of all local paths, or in the working directory if all are remote. Return the file, and the
    paths that the report does not show, each with the reason.
    """
    with contextlib.ExitStack() as copies:
        addresses = {
            str(copies.enter_context(local_records(path))): path
            for path in paths
            if is_remote(path)
        }
        local = [path for path in paths if not is_remote(path)]
        sources = find_records([*local, *addresses])
        page = check_output_file(
            _default_page(local or ["."]) if output is None else output, option="--output"
        )
        with explain_write_errors(page, hint=_OUTPUT_HINT):
            if page.exists():
                with page.open("rb") as file:
                    if GENERATOR.encode() not in file.read(_FIRST_BYTES):
                        raise UserError(
                            f"{page} exists and is not a report of kdist: {_OUTPUT_HINT}, or delete"
                            " the file"
                        )
        text = render_report(sources)
    for folder, address in addresses.items():
        text = text.replace(folder, address)
    with explain_write_errors(page, hint=_OUTPUT_HINT), folder_for_files(page.parent):
        # The name of a folder in another encoding has characters that UTF-8 cannot encode.
        atomic_write(page, text.encode("utf-8", "replace"))
    return page, sources.skipped


def _default_page(paths: Sequence[str]) -> str:
    common = os.path.commonpath([os.path.abspath(path) for path in paths])
    if common == os.sep:
        raise UserError(f"{', '.join(paths)} have no folder in common: pass --output FILE.html")
    inside = Path(common).is_relative_to(Path.cwd())
    return os.path.join(os.path.relpath(common) if inside else common, "report.html")


def render_report(sources: FoundRecords) -> str:
    """Return the page of the records."""
    return render_page(
        _make_title(sources),
        make_sections(sources),
        about=f"written {datetime.date.today().isoformat()} by kdist {__version__}",
    )


def make_sections(sources: FoundRecords) -> list[Section]:
    """Return sweeps, searches, then the runs of each data set."""
    sections = [_make_sweep_section(sweep) for sweep in sources.sweeps]
    sections += [_make_search_section(search) for search in sources.searches]
    by_data: dict[str, list[RunRecord]] = {}
    for run in sources.runs:
        by_data.setdefault(name_data_set(run.settings, run.summary.get("data")), []).append(run)
    sections += [_make_runs_section(data, runs) for data, runs in by_data.items()]
    if sources.skipped:
        table = _make_reasons_table("Folders and files that are not shown", sources.skipped)
        sections.append(Section(title="Skipped", tables=[table]))
    return sections


def _make_title(sources: FoundRecords) -> str:
    """Return the name of a single record, or the number of records of each kind."""
    studies = [*sources.sweeps, *sources.searches]
    # A point of a sweep counts as a run only if the sweep is not shown.
    runs = [run for run in sources.runs if not (studies and is_point(run))]
    names = [study.name for study in studies] + [run.name for run in runs]
    if len(names) == 1:
        return names[0]
    kinds = ((sources.sweeps, "sweep"), (sources.searches, "search"), (runs, "run"))
    words = [format_count(len(records), noun) for records, noun in kinds if records]
    return ", ".join(words).replace("searchs", "searches")


def _make_reasons_table(title: str, rows: Sequence[tuple[str, str]]) -> ResultsTable:
    return ResultsTable(title=title, columns=("Name", "Reason"), rows=rows)


# Sweeps and searches


def _make_sweep_section(sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    warning = describe_shared_cores(sweep.machine, sweep.done)
    section = Section(
        title=f"{experiment.kind.capitalize()}: {sweep.name}",
        lead=f"{_describe_counts(sweep, 'point')}. {warning or ''}",
    )
    if sweep.done:
        summary = experiment.summarize(sweep.done)
        section.tables.append(experiment.table(summary, sweep.settings))
        section.figures.append(draw_sweep(sweep, summary))
    if sweep.failed:
        section.tables.append(_make_reasons_table("Points that failed", sweep.failed))
    return section


def _describe_counts(study: SweepRecord | SearchRecord, noun: str) -> str:
    return f"{format_count(len(study.done), noun)} finished, {len(study.failed)} failed"


def draw_sweep(sweep: SweepRecord, summary: Sequence[Row]) -> Figure:
    """Draw the results of a sweep: a line for each combination of settings beside the axis.

    `summary` has a row of results for each combination of settings.
    """
    experiment = sweep.experiment
    axis, x_label = experiment.axis
    line_settings = [
        name for name in experiment.setting_columns if name not in (axis, "batch_size")
    ]
    lines: dict[str, list[Row]] = {}
    for name, row in zip(name_series(summary, line_settings), summary, strict=True):
        lines.setdefault(name, []).append(row)

    def make_series(name: str, column: str) -> Series:
        rows = sorted(lines[name], key=lambda row: float(row[axis]))
        spreads = [(row[axis], row[column]) for row in rows if row[column] is not None]
        return Series(
            name, [Point(x, spread.median, spread.low, spread.high) for x, spread in spreads]
        )

    charts = [
        Chart(
            title=heading,
            x_label=x_label,
            series=[make_series(name, column) for name in lines],
            log_x=axis != "replicas",
            ticks_at_values=True,
            from_zero=column != "accuracy",
        )
        for column, heading in experiment.charts.items()
    ]
    return Figure(caption="Points: medians; bars: minimum to maximum.", charts=charts)


def name_series(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Name each row by the columns whose values differ.

    Examples:
        >>> name_series([{"replicas": 1, "lr_rule": "sqrt"}, {"replicas": 2, "lr_rule": "sqrt"}],
        ...     ["lr_rule", "replicas"])
        ['replicas 1', 'replicas 2']
    """
    varied = [name for name in columns if len({row[name] for row in rows}) > 1]
    return [
        ", ".join(f"{name.replace('_', ' ')} {format_setting(row[name])}" for name in varied)
        or "measured"
        for row in rows
    ]


def _make_search_section(record: SearchRecord) -> Section:
    search = record.search
    model = model_name(search.config.to_dict())
    if {"depth", "width"} & set(search.space or ()):
        model = "WideResNet"
    goal = "highest" if search.direction == "max" else "lowest"
    section = Section(
        title=f"Search: {record.name}",
        lead=f"{search.tuner.capitalize()} search of {model} for the {goal} {search.objective}:"
        f" {_describe_counts(record, 'trial')}.",
    )
    if record.rows:
        section.tables.append(make_trials_table(record.rows, search))
    if record.done:
        section.figures.append(draw_search(record))
    if record.failed:
        section.tables.append(_make_reasons_table("Trials that failed", record.failed))
    return section


def draw_search(record: SearchRecord) -> Figure:
    """Draw the scores by trial, then by each hyperparameter that varied."""
    search = record.search
    # The penalty of a trial that missed the target would hide the differences of other scores.
    trials = [
        (number, row)
        for number, row in enumerate(record.rows, 1)
        if row["status"] == "done" and row["reached"] is not False
    ]

    def make_chart(name: str, values: Sequence[float | str]) -> Chart:
        points = [Point(x, row["score"]) for x, (_, row) in zip(values, trials, strict=True)]
        bounds = (search.space or {}).get(name)
        return Chart(
            title=search.objective,
            x_label=name,
            series=[Series("trial", points, "markers")],
            log_x=isinstance(bounds, Mapping) and "log" in str(bounds.get("sampling")),
            ticks_at_values=isinstance(bounds, list),
        )

    charts = [make_chart("Trial", [number for number, _ in trials])]
    for name in search.space or ():
        values = [_number_or_text(row["values"][name]) for _, row in trials]
        if len(set(values)) > 1:
            charts.append(make_chart(name, values))
    caption = "One point per trial; trials that missed their target are left out."
    return Figure(caption=caption, charts=charts)


def _number_or_text(value: object) -> float | str:
    number = None if isinstance(value, bool) else as_finite(value)
    return str(value) if number is None else number


# Runs

_EPOCH_CHARTS = {
    "val_accuracy": "Validation accuracy",
    "val_loss": "Validation loss",
    "accuracy": "Training accuracy",
    "loss": "Training loss",
    "images_per_sec": "Images per second",
    "learning_rate": "Learning rate",
    "batch_norm_gap": "Batch norm: gap between moving and batch statistics",
    "batch_norm_replica_gap": "Batch norm: gap between replicas and replica 0",
}
_CHARTS_FROM_ZERO = {"images_per_sec", "learning_rate", "batch_norm_gap", "batch_norm_replica_gap"}


def _make_runs_section(data: str, runs: Sequence[RunRecord]) -> Section:
    shared = (
        "Replicas with shared cores are parts of one CPU: their throughput shows the overhead of"
        " several replicas, and no speed-up."
    )
    best_first = sorted(runs, key=lambda run: run.best or (0.0, 0), reverse=True)
    return Section(
        title=f"Runs on {data}",
        lead=shared if any(run.shares_cores for run in runs) else "",
        tables=[make_runs_table(best_first)],
        figures=[draw_learning_curves(best_first)],
    )


def draw_learning_curves(runs: Sequence[RunRecord]) -> Figure:
    """Draw each logged column by epoch, and the validation accuracy by seconds.

    The runs have different names.
    """

    def make_curve(run: RunRecord, column: str, x: str) -> Series:
        points = [(row.get(x), row.get(column)) for row in run.epochs]
        return Series(run.name, [Point(x, y) for x, y in points if x is not None and y is not None])

    def make_chart(column: str, x: str, x_label: str) -> Chart:
        return Chart(
            title=_EPOCH_CHARTS[column],
            x_label=x_label,
            series=[make_curve(run, column, x) for run in runs],
            from_zero=column in _CHARTS_FROM_ZERO,
        )

    first, *others = (make_chart(column, "epoch", "Epoch") for column in _EPOCH_CHARTS)
    by_time = make_chart("val_accuracy", "seconds", "Seconds of training")
    caption = "One line per run, one point per epoch. With another seed, a run has another line."
    return Figure(caption=caption, charts=[first, by_time, *others])


def make_runs_table(runs: Sequence[RunRecord]) -> ResultsTable:
    """Make a table with a line for each run: results, then the settings that differ."""
    settings = compare_settings(runs)
    return ResultsTable(
        title="Results, best first",
        columns=[*_RUN_COLUMNS, *(settings[0] if settings else ())],
        rows=[
            [*(text(run) for text in _RUN_COLUMNS.values()), *row.values()]
            for run, row in zip(runs, settings, strict=True)
        ],
        note="Images/s: median of all epochs but the first, whose time includes the tracing of the"
        " step. Time to target: until the end of the first of the epochs in a row that beat the"
        " run's target.",
    )


def _format_speed(run: RunRecord) -> str:
    is_of_first_epoch = run.images_per_sec is not None and not run.is_warm
    return format_rate(run.images_per_sec) + " (first epoch)" * is_of_first_epoch


def _format_time_to_target(run: RunRecord) -> str:
    met = run.summary_number("met_seconds")
    if met is not None:
        return format_seconds(met)
    return "not reached" if run.known_values("val_accuracy") else MISSING


def _format_replicas(run: RunRecord) -> str:
    workers = run.summary_number("workers") or 1
    of_workers = f" of {workers:.0f} workers" if workers > 1 else ""
    cores = ", shared cores" if run.shares_cores else ""
    return f"{format_setting(run.summary_number('replicas'))}{of_workers}{cores}"


def _describe_status(run: RunRecord) -> str:
    if run.status == "diverged":
        return f"diverged in {run.diverged_at}"
    return "killed or still running" if run.status == "unfinished" else run.status


_RUN_COLUMNS: dict[str, Callable[[RunRecord], str]] = {
    "Run": lambda run: run.name,
    "Best val. accuracy": lambda run: format_accuracy(run.best[0] if run.best else None),
    "Images/s": _format_speed,
    "Time to target": _format_time_to_target,
    "Total time": lambda run: format_seconds(run.summary_number("seconds")),
    "Epochs": lambda run: f"{len(run.epochs):,}",
    "Status": _describe_status,
    "Replicas": _format_replicas,
    "Global batch": lambda run: format_setting(run.summary_number("global_batch")),
}
