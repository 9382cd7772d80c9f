"""`sweep`: finds or makes the folder, runs what is left, tells what it came to."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from ..config import TrainConfig
from .driver import Outcome, RunPoint, run_sweep, why_stopped
from .experiment import Experiment
from .machine import machine as describe_machine
from .machine import shared_cores_warning
from .point_run import run_point as run_in_process
from .sweep_folder import SweepFolder, open_folder

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
    """Run a sweep, or go on with one.

    Args:
        experiment_for: Makes the experiment, once it is known where it runs.
        output: Its folder, see `open_folder`.
        fresh: See there.
        retry_failed: Run points again that failed in an earlier call.
        run_point: Runs one point.
        machine: Tells where it runs.
        console: Takes everything that is told.

    Returns:
        An exit code: 0, 1 where it could not go on, 130 after Ctrl-C.

    Raises:
        UserError: Settings that will not do, or another sweep in the folder; nothing was run then.
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
        told = "Going on with the sweep in" if found else "Sweep folder:"
        console.print(f"{told} {folder.path}", markup=False, highlight=False, soft_wrap=True)
        outcome = run_sweep(
            experiment, folder, run_point=run_point, console=console, retry_failed=retry_failed
        )
        if outcome.rows and not outcome.stopped:
            try:
                _tell(experiment, folder, outcome, about, console)
            except OSError as error:
                outcome = dataclasses.replace(outcome, stopped=why_stopped(error, folder))
    return _end(outcome, folder, len(points), console)


def _tell(
    experiment: Experiment,
    folder: SweepFolder,
    outcome: Outcome,
    about: dict[str, Any],
    console: Console,
) -> None:
    warning = shared_cores_warning(about, max(row["replicas"] for row in outcome.rows))
    measured = {
        "points_left": outcome.left,
        "warning": warning,
        **experiment.measure(outcome.rows),
    }
    folder.write_rows(outcome.rows)
    for part in experiment.tables(measured):
        console.print(Text(part) if isinstance(part, str) else part, highlight=False)
    if warning:
        console.print(f"Warning: {warning}", markup=False, highlight=False)
    for path in experiment.draw(outcome.rows, measured, folder.path):
        console.print(f"Chart: {path}", markup=False, highlight=False, soft_wrap=True)
    folder.write_summary(measured)  # last: with it the sweep is finished


def _end(outcome: Outcome, folder: SweepFolder, points: int, console: Console) -> int:
    if not outcome.left and not outcome.stopped:
        return 0
    why = f"Stopped: {outcome.stopped}" if outcome.stopped else "Interrupted"
    console.print(
        f"{why}; {points - outcome.left} of {points} points are in {folder.path}, the same command"
        " goes on.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 130 if outcome.interrupted else 1
