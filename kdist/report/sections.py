"""`Report`: the headlines of a page, and its sections of tables and charts."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .. import __version__
from ..charts.figures import Figure, learning_curves
from ..charts.tables import MISSING, ResultsTable, accuracy, rate, seconds, setting
from ..study.experiment import shared_cores_warning
from ..study.search_results import searched_model, trials_figure, trials_table
from ..training.console import count
from ..training.record import RunRecord, sanitize_text
from .inputs import Sources, compare_settings, data_set
from .results import Headline, find_headlines, find_results
from .studies import SearchRecord, SweepRecord


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        title: Its heading.
        lead: A sentence below the heading.
        tables: Its tables.
        figures: Its charts.
    """

    title: str
    lead: str = ""
    tables: list[ResultsTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


@dataclass(kw_only=True)
class Report:
    """The contents of a page.

    Attributes:
        title: The records of the page.
        about: The date and the version that wrote the page.
        headlines: The figures that come first.
        sections: The parts.
    """

    title: str
    about: str
    headlines: list[Headline]
    sections: list[Section]


def make_report(sources: Sources) -> Report:
    """Put a report together: sweeps, searches, then the runs of each data set."""
    sections = [_sweep_section(sweep) for sweep in sources.sweeps]
    sections += [_search_section(search) for search in sources.searches]
    by_data: dict[str, list[RunRecord]] = {}
    for run in sources.all_runs:
        by_data.setdefault(data_set(run.settings, run.summary.get("data")), []).append(run)
    sections += [_runs_section(data, runs) for data, runs in by_data.items()]
    if sources.skipped:
        table = _reasons("Folders and files that are not shown", sources.skipped)
        sections.append(Section(title="Skipped", tables=[table]))
    return Report(
        title=_title(sources),
        about=f"written {datetime.date.today().isoformat()} by kdist {__version__}",
        headlines=find_headlines(find_results(sources)),
        sections=sections,
    )


def _title(sources: Sources) -> str:
    """Return the name of a single record, else the number of each kind."""
    names = [sweep.name for sweep in sources.sweeps]
    names += [search.name for search in sources.searches]
    names += [run.name for run in sources.runs]
    if len(names) == 1:
        return names[0]
    kinds = ((sources.sweeps, "sweep"), (sources.searches, "search"), (sources.runs, "run"))
    words = [count(len(records), noun) for records, noun in kinds if records]
    return ", ".join(words).replace("searchs", "searches")


def _reasons(title: str, rows: Sequence[tuple[str, str]]) -> ResultsTable:
    return ResultsTable(title=title, columns=("Name", "Reason"), rows=rows)


def _sweep_section(sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    summary = experiment.summarize(sweep.done, sweep.settings)
    missing = [(str(row["name"]), f"failed: {row['error'] or 'no reason'}") for row in sweep.failed]
    missing += sweep.skipped
    tables = experiment.tables(summary)
    if missing:
        tables = [*tables, _reasons("Points that are not shown", missing)]
    warning = shared_cores_warning(dict(sweep.machine), sweep.done)
    return Section(
        title=f"{sweep.kind.capitalize()}: {sweep.name}",
        lead=f"{count(len(sweep.done), 'point')} finished, {len(missing)} not. {warning or ''}",
        tables=tables,
        figures=experiment.figures(summary),
    )


def _search_section(record: SearchRecord) -> Section:
    search = record.search
    failed = [(row["name"], str(row["error"])) for row in record.failed]
    tables = [trials_table(record.trials, search)] if record.trials else []
    if failed:
        tables.append(_reasons("Trials that failed", failed))
    parts = [f"{count(len(record.ranked), 'trial')} completed", f"{len(failed)} failed"]
    goal = "highest" if search.direction == "max" else "lowest"
    kind = f"{search.tuner.capitalize()} search of {searched_model(search)}"
    return Section(
        title=f"Search: {record.name}",
        lead=f"{kind} for the {goal} {search.objective}: {', '.join(parts)}.",
        tables=tables,
        figures=[trials_figure(record.trials, search)] if record.ranked else [],
    )


def _runs_section(data: str, runs: Sequence[RunRecord]) -> Section:
    shared = (
        "Replicas with shared cores are logical CPUs of one processor: their speed shows no"
        " speed-up, only what several replicas cost besides their computing."
    )
    return Section(
        title=f"Runs on {data}",
        lead=shared if any(run.shares_cores for run in runs) else "",
        tables=[runs_table(runs)],
        figures=learning_curves(runs),
    )


def runs_table(runs: Sequence[RunRecord]) -> ResultsTable:
    """Make a table of runs, a line each: results, then the settings that differ."""
    settings = compare_settings(runs)
    return ResultsTable(
        title="Results",
        columns=[*_COLUMNS, *(settings[0] if settings else ())],
        rows=[
            [*(text(run) for text in _COLUMNS.values()), *row.values()]
            for run, row in zip(runs, settings, strict=True)
        ],
        note="Images/s: median of the epochs after the first, which includes the tracing of the"
        " step. Time to target: the first epoch of those in a row that beat the run's own target.",
    )


def _speed(run: RunRecord) -> str:
    return rate(run.images_per_sec) + (" (first epoch)" if run.rates and not run.is_warm else "")


def _time_to_target(run: RunRecord) -> str:
    met = run.fact("met_seconds")
    if met is not None:
        return seconds(met)
    return "not reached" if run.logged("val_accuracy") else MISSING


def _replicas(run: RunRecord) -> str:
    cores = ", shared cores" if run.shares_cores else ""
    return f"{setting(run.fact('replicas'))}{run.of_workers}{cores}"


_COLUMNS: dict[str, Callable[[RunRecord], str]] = {
    "Run": lambda run: run.name,
    "Best val. accuracy": lambda run: accuracy(run.best[0] if run.best else None),
    "Images/s": _speed,
    "Time to target": _time_to_target,
    "Total time": lambda run: seconds(run.fact("seconds")),
    "Epochs": lambda run: f"{len(run.epochs):,}",
    "Status": lambda run: run.status.detail,
    "Replicas": _replicas,
    "Global batch": lambda run: setting(run.fact("global_batch")),
    "Folder": lambda run: sanitize_text(str(run.path)),
}
