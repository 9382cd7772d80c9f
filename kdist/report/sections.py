"""The sections of a report, each with the data of its charts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..charts.curves import EPOCHS, curve_figures, epoch_rows
from ..charts.figure import Figure
from ..charts.formatting import setting
from ..charts.speed import SPEEDS, run_speeds, speed_rows
from ..runs.run_record import RunRecord
from ..runs.text import count
from ..sweep.machine import shared_cores_warning
from ..sweep.sweep_record import SweepRecord
from ..sweep.throughput import ThroughputSweep
from .csv_measurements import CsvMeasurements
from .inputs import LeftOut, Sources
from .settings_diff import run_settings, shared
from .tables import (
    Table,
    diff_table,
    failed_table,
    left_out_table,
    measurements_table,
    results_table,
    runs_table,
)

Rows = list[dict[str, Any]]


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        id: Unique on the page.
        title: Its heading.
        lead: A sentence below the heading.
        figures: Its charts.
        data: The charts' rows by the name of the data, which is unique on the page.
        tables: Its tables.
        settings: Names and values, folded away.
    """

    id: str
    title: str
    lead: str = ""
    figures: list[Figure] = field(default_factory=list)
    data: dict[str, Rows] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def make_sections(sources: Sources, baseline: RunRecord | None) -> list[Section]:
    """Make the sections in the order of the page.

    Args:
        sources: What was read.
        baseline: The run that settings are compared with.
    """
    sections = [
        *(_sweep_section(f"sweep-{at}", one) for at, one in enumerate(sources.sweeps, start=1)),
        *(_typed_section(f"numbers-{at}", one) for at, one in enumerate(sources.typed, start=1)),
    ]
    if sources.all_runs:
        sections.append(_runs_section(sources))
        sections.append(_settings_section(sources.all_runs, baseline))
    if sources.left_out:
        sections.append(_left_out_section(sources.left_out))
    return sections


def _sweep_section(ident: str, sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    summary = experiment.summarize(sweep.done, sweep.settings)
    figures, rows = experiment.figures(
        sweep.name, sweep.done, summary, runs=sweep.runs, prefix=f"{ident}-"
    )
    tables = [*map(results_table, experiment.tables(summary)), failed_table(sweep.failed)]
    return Section(
        id=ident,
        title=f"Sweep {sweep.name}",
        lead=_sweep_lead(sweep),
        figures=figures,
        data=rows,
        tables=[table for table in tables if table],
        settings=_sweep_settings(sweep),
    )


def _sweep_lead(sweep: SweepRecord) -> str:
    parts = [f"{sweep.kind.capitalize()} sweep", f"{count(len(sweep.done), 'point')} done"]
    parts += [f"{len(sweep.failed)} failed"] if sweep.failed else []
    parts += [f"{len(sweep.left_out)} left out"] if sweep.left_out else []
    return f"{', '.join(parts)}.{_shared_cores(sweep)}"


def _sweep_settings(sweep: SweepRecord) -> dict[str, str]:
    asked = {name: value for name, value in sweep.settings.items() if name != "train"}
    machine = {f"machine: {name}": value for name, value in sweep.machine.items()}
    about = {**asked, **sweep.train_settings, **machine}
    return {name: setting(value) for name, value in about.items()}


def _shared_cores(sweep: SweepRecord) -> str:
    most = max((row["replicas"] for row in sweep.done), default=1)
    known = isinstance(sweep.machine.get("devices"), list)
    warning = shared_cores_warning(dict(sweep.machine), int(most)) if known else None
    return f" {warning}" if warning else ""


def _typed_section(ident: str, typed: CsvMeasurements) -> Section:
    summary = ThroughputSweep.summarize(typed.rows, {})
    figures, rows = ThroughputSweep.figures(
        typed.name, typed.rows, summary, runs={}, prefix=f"{ident}-"
    )
    _, *fits = ThroughputSweep.tables(summary)  # the measurements themselves say the speeds
    return Section(
        id=ident,
        title=typed.name,
        lead=f"{count(len(typed.rows), 'number')} as typed into {typed.path.name}.",
        figures=figures,
        data=rows,
        tables=[*map(results_table, fits), measurements_table(typed)],
    )


def _runs_section(sources: Sources) -> Section:
    runs, alone = sources.all_runs, bool(sources.runs)
    return Section(
        id="runs",
        title="Runs",
        lead="" if alone else "The runs of the sweep, one by one.",
        # A sweep has charts of its own for speed.
        figures=[*curve_figures(runs), *(run_speeds(runs) if alone else [])],
        data={EPOCHS: epoch_rows(runs), SPEEDS: speed_rows(runs)},
        tables=[runs_table(sources.runs)] if alone else [],
    )


def _settings_section(runs: Sequence[RunRecord], baseline: RunRecord | None) -> Section:
    table = diff_table(runs, baseline) if baseline and len(runs) > 1 else None
    return Section(
        id="settings",
        title="Settings",
        lead="" if table or len(runs) == 1 else "All runs have the same settings.",
        tables=[table] if table else [],
        settings=shared([run_settings(run) for run in runs]),
    )


def _left_out_section(left_out: Sequence[LeftOut]) -> Section:
    return Section(
        id="left-out",
        title="Left out",
        lead="Not part of any figure above.",
        tables=[left_out_table(left_out)],
    )
