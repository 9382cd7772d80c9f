"""`Report`: what a page shows: its headlines, and sections of tables, charts and settings."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .. import __version__
from ..charts.figures import Figure, learning_curves, run_speeds
from ..charts.tables import MISSING, ResultsTable, accuracy, rate, seconds, setting
from ..errors import UserError
from ..runs.record import RunRecord
from ..runs.text import count, sanitize_text
from ..study.search_trials import searched_model, trials_figure, trials_table
from ..study.sweep_experiment import shared_cores_warning
from ..training.settings import FOLDERS, model_name
from .inputs import Sources, differing, settings_of
from .results import Headline, find_results, headlines
from .studies import SearchRecord, SweepRecord


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        id: Unique on the page; the names of its PNG files begin with it.
        title: Its heading.
        lead: A sentence below the heading.
        tables: Its tables.
        figures: Its charts.
        settings: Names and values, collapsed.
    """

    id: str
    title: str
    lead: str = ""
    tables: list[ResultsTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def file(self, figure: Figure) -> str:
        """Return the name of a chart's PNG file."""
        return f"{self.id}-{figure.id}.png"


@dataclass(kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: What was run.
        facts: Where and when, and what wrote the page.
        headlines: The figures that come first.
        sections: The parts.
    """

    title: str
    facts: list[str]
    headlines: list[Headline]
    sections: list[Section]


def make_report(sources: Sources, *, baseline: str | None = None) -> Report:
    """Put a report together.

    Args:
        sources: What was read.
        baseline: Name or folder of the run that settings are compared with; by default the first.

    Raises:
        UserError: There is no run of the baseline's name.
    """
    runs = _baseline_first(sources.all_runs, baseline)
    sections = [_sweep_section(f"sweep-{n}", one) for n, one in enumerate(sources.sweeps, 1)]
    sections += [_search_section(f"search-{n}", one) for n, one in enumerate(sources.searches, 1)]
    if runs:
        sections += [_runs_section(sources), _settings_section(runs)]
    if sources.skipped:
        sections.append(
            Section(
                id="skipped",
                title="Skipped",
                tables=[_reasons("Folders and files that are not shown", sources.skipped)],
            )
        )
    return Report(
        title=_title(sources),
        facts=_facts(sources),
        headlines=headlines(find_results(sources)),
        sections=sections,
    )


def _baseline_first(runs: Sequence[RunRecord], name: str | None) -> list[RunRecord]:
    if name is None:
        return list(runs)
    wanted = name.rstrip("/")
    for run in runs:
        if wanted in (run.name, run.path.name, str(run.path)):
            return [run, *(other for other in runs if other is not run)]
    names = ", ".join(run.name for run in runs[:20])
    raise UserError(
        f"no run is called {name}: --baseline is one of {names or 'none, there are none'}"
    )


def _title(sources: Sources) -> str:
    """The name of what is alone, else how much there is."""
    names = [one.name for one in sources.sweeps]
    names += [*(one.name for one in sources.searches), *(run.name for run in sources.runs)]
    if len(names) == 1:
        return names[0]
    kinds = ((sources.sweeps, "sweep"), (sources.searches, "search"), (sources.runs, "run"))
    words = [count(len(records), noun) for records, noun in kinds if records]
    return ", ".join(words).replace("searchs", "searches")


def _facts(sources: Sources) -> list[str]:
    """The machines and the data, then the date and the version that wrote the page."""
    facts = []
    for sweep in sources.sweeps:
        devices = sweep.machine.get("devices")
        names = [str(name) for name in devices] if isinstance(devices, list) else []
        gpus = [name for name in names if not name.startswith("CPU")]
        facts.append(", ".join(gpus) or str(sweep.machine.get("cpu") or ""))
    for run in sources.all_runs:
        kinds = run.summary.get("device_names")
        facts.append(", ".join(dict.fromkeys(map(str, kinds))) if isinstance(kinds, list) else "")
        facts.append(str(run.summary.get("data", "")))
    facts.append(f"written {datetime.date.today().isoformat()} by kdist {__version__}")
    return [fact for fact in dict.fromkeys(facts) if fact]


def _reasons(title: str, rows: Sequence[tuple[str, str]]) -> ResultsTable:
    return ResultsTable(title=title, columns=("Name", "Reason"), rows=rows)


def _sweep_section(ident: str, sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    summary = experiment.summarize(sweep.done, sweep.settings)
    missing = [(str(row["name"]), f"failed: {row['error'] or 'no reason'}") for row in sweep.failed]
    missing += sweep.skipped
    tables = experiment.tables(summary)
    if missing:
        tables = [*tables, _reasons("Points that are not shown", missing)]
    warning = shared_cores_warning(dict(sweep.machine), sweep.done)
    asked = {name: value for name, value in sweep.settings.items() if name != "train"}
    machine = {f"machine: {name}": value for name, value in sweep.machine.items()}
    about = {**asked, **sweep.train_settings, **machine}
    return Section(
        id=ident,
        title=f"{sweep.kind.capitalize()}: {sweep.name}",
        lead=f"{count(len(sweep.done), 'point')} finished, {len(missing)} not. {warning or ''}",
        tables=tables,
        figures=experiment.figures(sweep.done, summary),
        settings={name: setting(value) for name, value in about.items()},
    )


def _search_section(ident: str, search: SearchRecord) -> Section:
    failed = [(f"trial {trial.trial_id}", trial.failure) for trial in search.failed]
    tables = [trials_table(search.trials, search.search)] if search.trials else []
    if failed:
        tables.append(_reasons("Trials that failed", failed))
    parts = [f"{count(len(search.ranked), 'trial')} completed", f"{len(failed)} failed"]
    if search.unfinished:
        parts.append(f"{len(search.unfinished)} unfinished: stopped or still running")
    goal = "highest" if search.search.direction == "max" else "lowest"
    what = f"{search.search.tuner.capitalize()} search of {searched_model(search.search)}"
    about = search.search.to_dict()
    about = {**about.pop("config"), **about}
    hidden = FOLDERS | {"output", "space", *(search.search.space or ())}
    ended = search.ranked or search.failed
    return Section(
        id=ident,
        title=f"Search: {search.name}",
        lead=f"{what} for the {goal} {search.search.objective}: {', '.join(parts)}.",
        tables=tables,
        figures=[trials_figure(search.trials, search.search)] if ended else [],
        settings={k: setting(v) for k, v in about.items() if k not in hidden},
    )


def _runs_section(sources: Sources) -> Section:
    runs = sources.all_runs
    figures = learning_curves(runs)
    if sources.runs:  # a sweep has its own charts of speed
        figures += run_speeds(runs)
    shared = (
        "Replicas with shared cores are logical CPUs of one processor: their speed shows no"
        " speed-up, only what several replicas cost besides their computing."
    )
    return Section(
        id="runs",
        title="Runs",
        lead=shared if any(run.shares_cores for run in runs) else "",
        tables=[runs_table(runs)],
        figures=figures,
    )


def _settings_section(runs: Sequence[RunRecord]) -> Section:
    """The settings that differ from those of the first run, and those that all share."""
    settings = [settings_of(run) for run in runs]
    names = differing(settings)
    rows = [
        [run.name, *(one.get(name, MISSING) for name in names)]
        for run, one in zip(runs, settings, strict=True)
    ]
    table = ResultsTable(
        title="Settings that differ",
        columns=["Run", *names],
        rows=rows,
        note=f"Baseline: {runs[0].name}. Values that differ from the baseline's are marked.",
        has_baseline=True,
    )
    shared = {k: v for one in settings for k, v in one.items() if k not in names}
    return Section(
        id="settings", title="Settings", tables=[table] if names else [], settings=shared
    )


# Runs


def runs_table(runs: Sequence[RunRecord]) -> ResultsTable:
    """Make a table of the results and settings of runs, a line each.

    Settings that are the same in all of several runs are left out.
    """
    cells = {name: [text(run) for run in runs] for name, text in _COLUMNS.items()}
    shown = [
        name
        for name in cells
        if name not in _SETTINGS or len(runs) == 1 or len({*cells[name]} - {MISSING}) > 1
    ]
    return ResultsTable(
        title="Results",
        columns=shown,
        rows=list(zip(*(cells[name] for name in shown), strict=True)),
        note="Images/s: median of the epochs after the first, which includes the tracing of the"
        " step; of a first epoch alone it is no measurement. Time to target: the first epoch of"
        " those in a row that beat the run's own target.",
    )


def _number(run: RunRecord, fact: str, form: str = ",.0f") -> str:
    value = run.fact(fact)
    return MISSING if value is None else format(value, form)


def _speed(run: RunRecord) -> str:
    return rate(run.images_per_sec) + (" (first epoch)" if run.rates and not run.is_warm else "")


def _time_to_target(run: RunRecord) -> str:
    met = run.fact("met_seconds")
    if met is not None:
        return seconds(met)
    reached = run.summary.get("reached_target")  # a run of an earlier kdist does not say when
    return "not reached" if run.logged("val_accuracy") and not reached else MISSING


def _replicas(run: RunRecord) -> str:
    cores = ", shared cores" if run.shares_cores else ""
    return f"{_number(run, 'replicas')}{run.of_workers}{cores}"


_COLUMNS: dict[str, Callable[[RunRecord], str]] = {
    "Run": lambda run: run.name,
    "Best val. accuracy": lambda run: accuracy(run.best[0] if run.best else None),
    "Last": lambda run: accuracy(run.fact("val_accuracy")),
    "Images/s": _speed,
    "Time to target": _time_to_target,
    "Total time": lambda run: seconds(run.fact("seconds")),
    "Epochs": lambda run: f"{len(run.epochs):,}",
    "Status": lambda run: run.status.detail,
    "Replicas": _replicas,
    "Global batch": lambda run: _number(run, "global_batch"),
    "Learning rate": lambda run: _number(run, "learning_rate", "g"),
    "Model": lambda run: model_name(run.settings),
    "Optimizer": lambda run: str(run.settings.get("optimizer", MISSING)),
    "Data": lambda run: str(run.summary.get("data", MISSING)),
    "Folder": lambda run: sanitize_text(str(run.path)),
}
_SETTINGS = {"Replicas", "Global batch", "Learning rate", "Model", "Optimizer", "Data"}
