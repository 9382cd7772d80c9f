"""`sweep`: finds or makes the folder, runs what is left, shows the results."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.groups import done, failures
from ..atomic_files import atomic_write
from ..training.config import TrainConfig
from .driver import Outcome, RunPoint, run_sweep, why_stopped
from .experiment import Experiment, ResultsTable
from .machine import machine as describe_machine
from .machine import shared_cores_warning
from .run_point import run_point as run_in_process
from .sweep_folder import SweepFolder, open_folder
from .sweep_record import read_runs

_FILE_WIDTH = 160


def sweep(
    experiment_for: Callable[[dict[str, Any]], Experiment],
    *,
    output: str | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    run_point: RunPoint = run_in_process,
    machine: Callable[[], dict[str, Any]] = describe_machine,
    console: Console | None = None,
) -> int:
    """Run a sweep, or resume one.

    Args:
        experiment_for: Makes the experiment, once it is known where it runs.
        output: Its folder, see `open_folder`.
        fresh: See there.
        retry_failed: Run points again that failed in an earlier call.
        run_point: Runs one point.
        machine: Tells where it runs.
        console: Takes all output.

    Returns:
        An exit code: 0, 1 where it stopped early, 130 after Ctrl-C.

    Raises:
        UserError: Invalid settings, or another sweep in the folder; nothing was run then.
    """
    # A file has no width of its own: what the tables want.
    console = console or Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    about = machine()
    experiment = experiment_for(about)
    points = experiment.points()
    for point in points:
        TrainConfig.from_dict({**point.config})  # refuses before the first run what the last would
    folder, found = open_folder(
        kind=experiment.kind,
        settings=experiment.settings,
        machine=about,
        points=len(points),
        output=output,
        fresh=fresh,
        retry_failed=retry_failed,
    )
    with folder.alone():
        _say(console, f"{'Resuming the sweep in' if found else 'Sweep folder:'} {folder.path}")
        outcome = run_sweep(
            experiment, folder, run_point=run_point, console=console, retry_failed=retry_failed
        )
        if outcome.rows and not outcome.stopped:
            try:
                _show(experiment, folder, outcome, about, console)
            except OSError as error:
                outcome = dataclasses.replace(outcome, stopped=why_stopped(error, folder))
    return _end(outcome, folder, len(points), console)


def _show(
    experiment: Experiment,
    folder: SweepFolder,
    outcome: Outcome,
    about: dict[str, Any],
    console: Console,
) -> None:
    """Show tables, and write rows, charts and the summary."""
    ended = done(outcome.rows)
    warning = shared_cores_warning(about, max(row["replicas"] for row in outcome.rows))
    summary = {
        "points_left": outcome.left,
        "warning": warning,
        **experiment.summarize(ended, experiment.settings),
        "failed": failures(outcome.rows),
    }
    folder.write_rows(outcome.rows, experiment.columns())
    for table in experiment.tables(summary):
        _show_table(table, console)
    for one in summary["failed"]:
        console.print(Text(f"Failed: {one['name']}: {one['error']}"))
    if warning:
        console.print(Text(f"Warning: {warning}"))
    runs, _ = read_runs(folder.path, experiment.kind, outcome.rows)
    figures, data = experiment.figures("", ended, summary, runs=runs)
    for figure in figures:
        path = folder.path / f"{figure.id}.png"
        atomic_write(path, figure.png(data, note=warning or ""))
        _say(console, f"Chart: {path}")
    folder.write_summary(summary)  # last: with it the sweep is finished


def _show_table(table: ResultsTable, console: Console) -> None:
    shown = Table(*table.columns, title=table.title)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown, highlight=False)
    for line in table.note.splitlines():
        console.print(Text(line))


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _end(outcome: Outcome, folder: SweepFolder, points: int, console: Console) -> int:
    if not outcome.left and not outcome.stopped:
        return 0
    why = f"Stopped: {outcome.stopped}" if outcome.stopped else "Interrupted"
    _say(
        console,
        f"{why}; {points - outcome.left} of {points} points are in {folder.path}, the same command"
        " resumes the sweep.",
    )
    return 130 if outcome.interrupted else 1
