"""`Report`: everything that a page shows, put together from what was read."""

import datetime
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..sweep.machine import shared_cores_warning
from .accuracy_figures import accuracy_figures, accuracy_rows
from .curve_figures import EPOCHS, curve_figures, epoch_rows
from .figure import Figure
from .headlines import Headline, headlines
from .inputs import LeftOut, Sources
from .run_record import RunRecord
from .scaling_figures import scaling_figures, scaling_rows
from .settings_diff import run_settings, shared
from .speed_figures import SPEEDS, batch_rows, run_speeds, speed_rows, throughput
from .sweep_record import Group, SweepRecord
from .tables import (
    Table,
    diff_table,
    failed_table,
    fit_table,
    left_out_table,
    runs_table,
    sweep_table,
    typed_table,
)
from .trials import find_trials
from .typed_numbers import TypedNumbers
from .wording import count, setting

# So many runs are told apart at a glance; of more, the best are shown first.
SHOWN_AT_FIRST = 8


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        id: Unique on the page.
        title: Its heading.
        lead: A sentence below the heading.
        figures: Its charts.
        tables: Its tables.
        settings: Names and values, folded away.
    """

    id: str
    title: str
    lead: str = ""
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: What was run.
        facts: Where and when, and what wrote the page.
        headlines: The figures that come first.
        sections: The parts.
        run_names: Runs in the order of their colours.
        shown: Those of them that are drawn at first.
        data: The charts' rows by the name of the data.
        left_out: What is not shown.
    """

    title: str
    facts: list[str]
    headlines: list[Headline]
    sections: list[Section]
    run_names: list[str]
    shown: list[str]
    data: dict[str, list[dict[str, Any]]]
    left_out: list[LeftOut]

    @property
    def figures(self) -> list[Figure]:
        """All charts."""
        return [figure for section in self.sections for figure in section.figures]


def make_report(
    sources: Sources, *, baseline: str | None = None, today: datetime.date | None = None
) -> Report:
    """Put a report together.

    Args:
        sources: What was read.
        baseline: Name of the run that settings are compared with; the first one by default.
        today: The date that the page bears; today's by default.

    Raises:
        UserError: There is no run of the baseline's name.
    """
    runs = sources.all_runs
    data: dict[str, list[dict[str, Any]]] = {EPOCHS: epoch_rows(runs), SPEEDS: speed_rows(runs)}
    base = _baseline(runs, baseline)
    sections = []
    for number, sweep in enumerate(sources.sweeps, start=1):
        sections.append(_sweep_section(f"sweep-{number}", sweep, data))
    for number, typed in enumerate(sources.typed, start=1):
        sections.append(_typed_section(f"numbers-{number}", typed, data))
    if runs:
        table = [runs_table(sources.runs)] if sources.runs else []
        # A sweep has charts of its own for speed.
        speeds = run_speeds(runs) if sources.runs else []
        lead = "" if sources.runs else "The runs of the sweep, one by one."
        figures = [*curve_figures(runs), *speeds]
        sections.append(Section(id="runs", title="Runs", lead=lead, figures=figures, tables=table))
        sections.append(_settings_section(runs, base))
    if sources.left_out:
        lead = "Not part of any figure above."
        tables = [left_out_table(sources.left_out)]
        sections.append(Section(id="left-out", title="Left out", lead=lead, tables=tables))
    return Report(
        title=_title(sources),
        facts=_facts(sources, today or datetime.date.today()),
        headlines=headlines(find_trials(sources)),
        sections=sections,
        run_names=[run.name for run in runs],
        shown=_shown(runs),
        data=data,
        left_out=sources.left_out,
    )


def _baseline(runs: Sequence[RunRecord], name: str | None) -> RunRecord | None:
    if name is None:
        return runs[0] if runs else None
    wanted = name.rstrip("/")
    for run in runs:
        if wanted in (run.name, str(run.path)):
            return run
    names = ", ".join(run.name for run in runs[:20])
    raise UserError(
        f"no run is called {name}: --baseline is one of {names or 'none, there are none'}"
    )


def _shown(runs: Sequence[RunRecord]) -> list[str]:
    best = sorted(runs, key=lambda run: run.best[0] if run.best else -1.0, reverse=True)
    kept = {run.name for run in best[:SHOWN_AT_FIRST]}
    return [run.name for run in runs if run.name in kept]


def _sweep_section(ident: str, sweep: SweepRecord, data: dict[str, Any]) -> Section:
    groups, title = sweep.groups, f"Sweep {sweep.name}"
    if sweep.kind == "accuracy":
        rows, figures = accuracy_rows(groups), accuracy_figures(ident, sweep.name, groups)
    elif sweep.kind == "scaling":
        rows, figures = scaling_rows(groups), scaling_figures(ident, sweep.name, groups)
    else:
        rows = batch_rows(groups)
        points = "Faint points: each round. Strong points: their medians."
        figures = throughput(ident, sweep.name, groups, points)
    data |= {f"{ident}-{part}": values for part, values in rows.items()}
    done = len(sweep.rows) - len(sweep.failed)
    fits = fit_table(groups) if sweep.kind == "throughput" else None
    tables = (sweep_table(sweep) if groups else None, fits, failed_table(sweep.failed))
    asked = {name: value for name, value in sweep.settings.items() if name != "train"}
    machine = {f"machine: {name}": value for name, value in sweep.machine.items()}
    about = {**asked, **sweep.train_settings, **machine}
    return Section(
        id=ident,
        title=title,
        lead=f"{sweep.kind.capitalize()} sweep, {count(done, 'point')} done"
        + (f", {len(sweep.failed)} failed" if sweep.failed else "")
        + (f", {len(sweep.left_out)} left out" if sweep.left_out else "")
        + "."
        + _shared_cores(sweep),
        figures=figures,
        tables=[table for table in tables if table],
        settings={name: setting(value) for name, value in about.items()},
    )


def _shared_cores(sweep: SweepRecord) -> str:
    most = max((group.replicas for group in sweep.groups), default=1)
    told = isinstance(sweep.machine.get("devices"), list)
    warning = shared_cores_warning(dict(sweep.machine), int(most)) if told else None
    return f" {warning}" if warning else ""


def _typed_section(ident: str, typed: TypedNumbers, data: dict[str, Any]) -> Section:
    several = len({row["replicas"] for row in typed.rows}) > 1
    found: dict[tuple[float, float], list[dict[str, float]]] = {}
    for row in typed.rows:
        found.setdefault((row["replicas"], row["batch_size"]), []).append(row)
    groups = [
        Group(
            series=count(replicas, "replica") if several else "measured",
            batch_size=batch,
            replicas=replicas,
            rows=rows,
        )
        for (replicas, batch), rows in sorted(found.items())
    ]
    data |= {f"{ident}-{part}": rows for part, rows in batch_rows(groups).items()}
    return Section(
        id=ident,
        title=typed.name,
        lead=f"{count(len(typed.rows), 'number')} as typed into {typed.path.name}.",
        figures=throughput(ident, typed.name, groups, "The points are as typed in."),
        tables=[table for table in (fit_table(groups), typed_table(typed)) if table],
    )


def _settings_section(runs: Sequence[RunRecord], base: RunRecord | None) -> Section:
    table = diff_table(runs, base) if base and len(runs) > 1 else None
    lead = "" if table or len(runs) == 1 else "All runs have the same settings."
    alike = shared([run_settings(run) for run in runs])
    return Section(
        id="settings", title="Settings", lead=lead, tables=[table] if table else [], settings=alike
    )


def _title(sources: Sources) -> str:
    if len(sources.runs) == 1 and not sources.sweeps and not sources.typed:
        return sources.runs[0].name
    parts = [
        count(len(records), noun)
        for records, noun in (
            (sources.sweeps, "sweep"),
            (sources.runs, "run"),
            (sources.typed, "table"),
        )
        if records
    ]
    if len(sources.sweeps) == 1 and len(parts) == 1:
        return f"Sweep {sources.sweeps[0].name}"
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _facts(sources: Sources, today: datetime.date) -> list[str]:
    machines: dict[str, None] = {}
    for run in sources.all_runs:
        names = run.summary.get("device_names")
        kinds = dict.fromkeys(map(str, names)) if isinstance(names, list) else {}
        replicas = count(run.fact("replicas") or 1, "replica")
        machines[f"{replicas} on {', '.join(kinds)}" if kinds else replicas] = None
    for sweep in sources.sweeps:
        processor, devices = sweep.machine.get("cpu"), sweep.machine.get("devices")
        gpus = (
            [str(one) for one in devices or () if not str(one).startswith("CPU")]
            if isinstance(devices, list)
            else []
        )
        if not sweep.runs and (gpus or processor):
            machines[", ".join(gpus) or str(processor)] = None
    data = dict.fromkeys(
        str(run.summary["data"]) for run in sources.all_runs if "data" in run.summary
    )
    version = importlib.metadata.version("kdist")
    return [*machines, *data, f"written {today.isoformat()} by kdist {version}"]
