"""The sections of a report, each with the data of its charts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..charts.curves import curve_figures, epoch_rows
from ..charts.figure import Figure
from ..charts.formatting import setting
from ..charts.run_curve import EPOCHS
from ..charts.speed import SPEEDS, run_speeds, speed_rows
from ..runs.run_record import RunRecord
from ..runs.text import count
from ..sweep.machine import shared_cores_warning
from ..sweep.sweep_record import SweepRecord
from ..sweep.throughput import ThroughputSweep
from ..training.settings import FOLDERS
from ..tuning.trials_figure import searched_model, trials_figure
from ..tuning.trials_table import trials_table
from .csv_measurements import CsvMeasurements
from .heading import sweep_title
from .inputs import Sources
from .runs_table import SHARED_CORES, runs_table
from .search_record import SearchRecord
from .settings_diff import settings_of, shared
from .skipped import Skipped
from .table import Table
from .tables import (
    diff_table,
    measurements_table,
    not_shown_table,
    results_table,
    skipped_table,
)

Rows = list[dict[str, Any]]


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        id: Unique on the page.
        title: Its heading.
        lead: A sentence below the heading.
        results: The tables above its charts.
        figures: Its charts.
        data: The charts' rows by the name of the data, which is unique on the page.
        tables: The tables below its charts.
        settings: Names and values, collapsed.
    """

    id: str
    title: str
    lead: str = ""
    results: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    data: dict[str, Rows] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def make_sections(
    sources: Sources, baseline: RunRecord | None, *, names: Sequence[str]
) -> list[Section]:
    """Make the sections in the order of the page.

    Args:
        sources: What was read.
        baseline: The run that settings are compared with.
        names: The names of all runs, in the order of their colours.
    """
    sections = [
        *(_sweep_section(f"sweep-{at}", one) for at, one in enumerate(sources.sweeps, start=1)),
        *(_search_section(f"search-{at}", one) for at, one in enumerate(sources.searches, start=1)),
        *(
            _measurements_section(f"numbers-{at}", one)
            for at, one in enumerate(sources.measurements, start=1)
        ),
    ]
    if sources.all_runs:
        sections.append(_runs_section(sources, names))
        sections.append(_settings_section(sources.all_runs, baseline))
    if sources.skipped:
        sections.append(_skipped_section(sources.skipped))
    return sections


def _sweep_section(ident: str, sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    summary = experiment.summarize(sweep.done, sweep.settings)
    figures, rows = experiment.figures(
        sweep.name, sweep.done, summary, runs=sweep.runs, prefix=f"{ident}-"
    )
    missing = [(str(row["name"]), f"failed: {row['error'] or 'no reason'}") for row in sweep.failed]
    tables = [
        *map(results_table, experiment.tables(summary)),
        not_shown_table("Points that are not shown", [*missing, *sweep.skipped]),
    ]
    return Section(
        id=ident,
        title=sweep_title(sweep),
        lead=_sweep_lead(sweep),
        figures=figures,
        data=rows,
        tables=[table for table in tables if table],
        settings=_sweep_settings(sweep),
    )


def _sweep_lead(sweep: SweepRecord) -> str:
    parts = [f"{sweep.kind.capitalize()} sweep", f"{count(len(sweep.done), 'point')} finished"]
    parts += [f"{len(sweep.failed)} failed"] if sweep.failed else []
    parts += [f"{len(sweep.skipped)} skipped"] if sweep.skipped else []
    return f"{', '.join(parts)}.{_shared_cores(sweep)}"


def _sweep_settings(sweep: SweepRecord) -> dict[str, str]:
    asked = {name: value for name, value in sweep.settings.items() if name != "train"}
    machine = {f"machine: {name}": value for name, value in sweep.machine.items()}
    about = {**asked, **sweep.train_settings, **machine}
    return {name: setting(value) for name, value in about.items()}


def _shared_cores(sweep: SweepRecord) -> str:
    known = isinstance(sweep.machine.get("devices"), list)
    warning = shared_cores_warning(dict(sweep.machine), sweep.done) if known else None
    return f" {warning}" if warning else ""


def _search_section(ident: str, search: SearchRecord) -> Section:
    figures: list[Figure] = []
    rows: dict[str, Rows] = {}
    if search.ranked or search.failed:
        figures, rows = trials_figure(ident, search.trials, search.search)
    table = trials_table(search.trials, search.search)
    failed = [(f"trial {trial.trial_id}", trial.failure) for trial in search.failed]
    failures = not_shown_table("Trials that failed", failed)
    return Section(
        id=ident,
        title=f"Search {search.name}",
        lead=_search_lead(search),
        results=[results_table(table, capitalize=False)] if search.trials else [],
        figures=figures,
        data=rows,
        tables=[failures] if failures else [],
        settings=_search_settings(search),
    )


def _search_lead(search: SearchRecord) -> str:
    parts = [f"{count(len(search.ranked), 'trial')} completed"]
    parts += [f"{len(search.failed)} failed"] if search.failed else []
    if search.unfinished:
        parts.append(f"{len(search.unfinished)} unfinished: stopped or still running")
    goal = "highest" if search.objective.direction == "max" else "lowest"
    what = f"{search.search.tuner.capitalize()} search of {searched_model(search.search)}"
    return f"{what} for the {goal} {search.objective.metric}: {', '.join(parts)}."


def _search_settings(search: SearchRecord) -> dict[str, str]:
    about = search.search.to_dict()
    config = about.pop("config")
    hidden = FOLDERS | {"output", "space", *(search.search.space or ())}
    trials = {k: v for k, v in config.items() if k not in about}
    return {k: setting(v) for k, v in {**about, **trials}.items() if k not in hidden}


def _measurements_section(ident: str, table: CsvMeasurements) -> Section:
    summary = ThroughputSweep.summarize(table.rows, {})
    figures, rows = ThroughputSweep.figures(
        table.name, table.rows, summary, runs={}, prefix=f"{ident}-"
    )
    _, *fits = ThroughputSweep.tables(summary)  # the measurements themselves say the speeds
    return Section(
        id=ident,
        title=table.name,
        lead=f"{count(len(table.rows), 'measurement')} from {table.path.name}.",
        figures=figures,
        data=rows,
        tables=[*map(results_table, fits), measurements_table(table)],
    )


def _runs_section(sources: Sources, names: Sequence[str]) -> Section:
    runs, alone = sources.all_runs, bool(sources.runs)
    return Section(
        id="runs",
        title="Runs",
        lead=_runs_lead(sources),
        results=[runs_table(sources.runs)] if alone else [],
        # A sweep has its own charts of speed.
        figures=[*curve_figures(runs, names), *(run_speeds(runs, names) if alone else [])],
        data={EPOCHS: epoch_rows(runs), SPEEDS: speed_rows(runs)},
    )


def _runs_lead(sources: Sources) -> str:
    parts = [] if sources.runs else ["The single runs of the sweep."]
    broken = [run for run in sources.runs if not run.status.is_complete]
    if broken:
        words = dict.fromkeys(run.status.word for run in broken)
        counts = {word: sum(run.status.word == word for run in broken) for word in words}
        listed = ", ".join(f"{number} {word}" for word, number in counts.items())
        parts.append(f"Not trained to the end: {listed}.")
    if any(run.shares_cores for run in sources.runs):
        parts.append(
            f"Replicas with {SHARED_CORES} are logical CPUs of one processor: their speed shows no"
            " speed-up, only what several replicas cost besides their computing."
        )
    return " ".join(parts)


def _settings_section(runs: Sequence[RunRecord], baseline: RunRecord | None) -> Section:
    table = diff_table(runs, baseline) if baseline and len(runs) > 1 else None
    return Section(
        id="settings",
        title="Settings",
        lead="" if table or len(runs) == 1 else "All runs have the same settings.",
        tables=[table] if table else [],
        settings=shared([settings_of(run) for run in runs]),
    )


def _skipped_section(skipped: Sequence[Skipped]) -> Section:
    return Section(
        id="skipped",
        title="Skipped",
        lead="Not part of any figure above.",
        tables=[skipped_table(skipped)],
    )
