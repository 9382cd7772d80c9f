"""`Report`: everything that a page shows: its title, headlines and sections."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..charts.figure import LIGHT, Figure
from ..charts.runs import EPOCHS, SPEEDS, curve_figures, epoch_rows, run_speeds, speed_rows
from ..charts.tables import setting
from ..errors import UserError
from ..runs.record import RunRecord
from ..runs.text import count
from ..study.experiments import shared_cores_warning
from ..study.kinds import ThroughputSweep
from ..study.record import GridRecord, SearchRecord
from ..study.trials import searched_model, trials_figure, trials_table
from ..training.settings import FOLDERS, model_name
from .inputs import CsvMeasurements, Skipped, Sources, settings_of, shared
from .results import Headline, find_results, headlines, shares_cores
from .tables import (
    SHARED_CORES,
    Table,
    diff_table,
    measurements_table,
    not_shown_table,
    results_table,
    runs_table,
    skipped_table,
)


def page_title(sources: Sources) -> str:
    """Say what was run, in a few words."""
    kinds = (
        (sources.sweeps, "sweep"),
        (sources.searches, "search"),
        (sources.runs, "run"),
        (sources.measurements, "table"),
    )
    parts = [_count(len(records), noun) for records, noun in kinds if records]
    if len(parts) > 1:
        return " and ".join([", ".join(parts[:-1]), parts[-1]])
    if len(sources.sweeps) == 1:
        return sweep_title(sources.sweeps[0])
    if len(sources.searches) == 1:
        return f"Search {sources.searches[0].name}"
    if len(sources.runs) == 1:
        return sources.runs[0].name
    if len(sources.measurements) == 1:
        return sources.measurements[0].name
    models = {model_name(run.settings) for run in sources.runs}
    return f"{parts[0]} of {models.pop()}" if len(models) == 1 else parts[0]


def sweep_title(sweep: GridRecord) -> str:
    """Return the heading of a sweep's section."""
    if sweep.name == sweep.path.resolve().name:
        return f"Sweep {sweep.name}"
    return sweep.name[:1].upper() + sweep.name[1:]


def page_facts(sources: Sources, today: datetime.date) -> list[str]:
    """Name the machines and the data, then the date and the version that wrote the page."""
    machines = [
        *(_run_machine(run) for run in sources.all_runs),
        *(_sweep_machine(sweep) for sweep in sources.sweeps if not sweep.runs),
    ]
    data = [str(run.summary["data"]) for run in sources.all_runs if "data" in run.summary]
    written = f"written {today.isoformat()} by kdist {__version__}"
    return [*dict.fromkeys(filter(None, machines)), *dict.fromkeys(data), written]


def _count(number: int, noun: str) -> str:
    return f"{number} searches" if noun == "search" and number > 1 else count(number, noun)


def _run_machine(run: RunRecord) -> str:
    names = run.summary.get("device_names")
    kinds = ", ".join(dict.fromkeys(map(str, names))) if isinstance(names, list) else ""
    if not kinds:
        return ""
    replicas = count(run.fact("replicas") or 1, "replica")
    shared = " (logical CPUs, shared cores)" if run.shares_cores else ""
    return f"{replicas}{run.of_workers} on {kinds}{shared}"


def _sweep_machine(sweep: GridRecord) -> str:
    """Name the GPUs of a sweep's machine, else its processor; empty if neither is known."""
    devices = sweep.machine.get("devices")
    names = map(str, devices if isinstance(devices, list) else ())
    gpus = [name for name in names if not name.startswith("CPU")]
    most = max((row["replicas"] for row in sweep.done), default=1)
    shared = " (logical CPUs, shared cores)" if shares_cores(sweep, most) else ""
    return ", ".join(gpus) or f"{sweep.machine.get('cpu') or ''}{shared}"


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


def _sweep_section(ident: str, sweep: GridRecord) -> Section:
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


def _sweep_lead(sweep: GridRecord) -> str:
    parts = [f"{sweep.kind.capitalize()} sweep", f"{count(len(sweep.done), 'point')} finished"]
    parts += [f"{len(sweep.failed)} failed"] if sweep.failed else []
    parts += [f"{len(sweep.skipped)} skipped"] if sweep.skipped else []
    return f"{', '.join(parts)}.{_shared_cores(sweep)}"


def _sweep_settings(sweep: GridRecord) -> dict[str, str]:
    asked = {name: value for name, value in sweep.settings.items() if name != "train"}
    machine = {f"machine: {name}": value for name, value in sweep.machine.items()}
    about = {**asked, **sweep.train_settings, **machine}
    return {name: setting(value) for name, value in about.items()}


def _shared_cores(sweep: GridRecord) -> str:
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


SHOWN_AT_FIRST = len(LIGHT)
"""Runs that a page shows at first, each in its own colour; of more, the best."""


@dataclass(kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: What was run.
        facts: Where and when, and what wrote the page.
        headlines: The figures that come first.
        sections: The parts.
        run_names: The names of the runs.
        by_colour: The same in the order of their colours; those drawn at first come first.
        shown: The names of the runs that are drawn at first.
        skipped: What is not shown.
    """

    title: str
    facts: list[str]
    headlines: list[Headline]
    sections: list[Section]
    run_names: list[str]
    by_colour: list[str]
    shown: list[str]
    skipped: list[Skipped]

    @property
    def figures(self) -> list[Figure]:
        """All charts."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def data(self) -> dict[str, Rows]:
        """The rows of all charts, by the name of the data."""
        return {name: rows for section in self.sections for name, rows in section.data.items()}


def make_report(
    sources: Sources, *, baseline: str | None = None, today: datetime.date | None = None
) -> Report:
    """Put a report together.

    Args:
        sources: What was read.
        baseline: Name or folder of the run that settings are compared with; by default the first.
        today: The date on the page; today's by default.

    Raises:
        UserError: There is no run of the baseline's name.
    """
    runs = sources.all_runs
    shown = _shown(runs)
    names = [run.name for run in runs]
    by_colour = [*shown, *(name for name in names if name not in shown)]
    return Report(
        title=page_title(sources),
        facts=page_facts(sources, today or datetime.date.today()),
        headlines=headlines(find_results(sources)),
        sections=make_sections(sources, _baseline(runs, baseline), names=by_colour),
        run_names=names,
        by_colour=by_colour,
        shown=shown,
        skipped=sources.skipped,
    )


def _baseline(runs: Sequence[RunRecord], name: str | None) -> RunRecord | None:
    if name is None:
        return runs[0] if runs else None
    wanted = name.rstrip("/")
    for run in runs:
        if wanted in (run.name, run.path.name, str(run.path)):
            return run
    names = ", ".join(run.name for run in runs[:20])
    raise UserError(
        f"no run is called {name}: --baseline is one of {names or 'none, there are none'}"
    )


def _shown(runs: Sequence[RunRecord]) -> list[str]:
    best = sorted(runs, key=lambda run: run.best[0] if run.best else -1.0, reverse=True)
    kept = {run.name for run in best[:SHOWN_AT_FIRST]}
    return [run.name for run in runs if run.name in kept]
