"""`sweep`: finds or makes the folder, runs the remaining points, shows the results."""

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ..analysis.groups import done, failures
from ..files import atomic_write
from ..performance.hardware import machine as describe_machine
from ..runs.text import count
from ..training.settings import model_name
from ..training.workers import refuse_workers
from .checks import check_experiment, check_shares
from .driver import RunPoint, SweepOutcome, run_sweep, why_stopped
from .experiment import Experiment, ExperimentOrMaker
from .finished import show_finished
from .output import print_chart, print_line, print_results, say_whether_all_failed
from .replica_counts import shared_cores_warning
from .run_point import run_point as run_in_process
from .sweep_folder import SweepFolder, earlier_results, holds_sweep, open_folder
from .sweep_record import read_runs

_FILE_WIDTH = 160


def sweep(
    experiment: ExperimentOrMaker,
    *,
    output: str | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    run_point: RunPoint = run_in_process,
    machine: Callable[..., dict[str, Any]] = describe_machine,
    console: Console | None = None,
) -> int:
    """Run a sweep, resume one, or show the results of a finished one.

    Args:
        experiment: The experiment, or a function that makes it.
        output: Its folder, see `open_folder`.
        fresh: See there.
        retry_failed: Run points again that failed in an earlier call.
        run_point: Runs one point.
        machine: Describes where it runs.
        console: Takes all output.

    Returns:
        An exit code: 0, 1 where it stopped early or every point failed, 128 + the signal's number
        after Ctrl-C, SIGTERM or SIGHUP.

    Raises:
        UserError: Invalid settings, or another sweep in the folder; nothing was run then.
    """
    refuse_workers(
        os.environ,
        "kdist sweep",
        instead="run it on one machine, without a launcher; --workers N trains each point on N"
        " workers of that machine",
    )
    # A file has no width of its own: what the tables want.
    console = console or Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    if isinstance(experiment, Experiment):
        _check_and_describe(experiment, console)
    if output is not None and holds_sweep(output, fresh=fresh):
        path, again = Path(output), retry_failed
        code = show_finished(experiment, path, machine=machine, retry_failed=again, console=console)
        if code is not None:
            return code
    print_line(console, "Listing this machine's devices")
    about = machine()
    if not isinstance(experiment, Experiment):
        experiment = experiment(about)
        _check_and_describe(experiment, console)
    check_shares(experiment.workers)
    points = experiment.points()
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
        print_line(
            console, f"{'Resuming the sweep in' if found else 'Sweep folder:'} {folder.path}"
        )
        earlier = None if found or output is not None or fresh else earlier_results(folder)
        if earlier is not None:
            print_line(
                console,
                f"A sweep with the same settings is finished; --output {earlier} shows its results",
            )
        outcome = run_sweep(
            experiment, folder, run_point=run_point, console=console, retry_failed=retry_failed
        )
        if outcome.rows and not outcome.stopped:
            try:
                _show(experiment, folder, outcome, about, console)
            except OSError as error:
                outcome = dataclasses.replace(outcome, stopped=why_stopped(error, folder))
    return _end(outcome, folder, len(points), console)


def _check_and_describe(experiment: Experiment, console: Console) -> None:
    check_experiment(experiment)
    print_line(console, experiment.describe())


def _show(
    experiment: Experiment,
    folder: SweepFolder,
    outcome: SweepOutcome,
    about: dict[str, Any],
    console: Console,
) -> None:
    """Show tables, and write rows, charts and the summary."""
    ended = done(outcome.rows)
    warning = shared_cores_warning(about, outcome.rows)
    summary = {
        "points_left": outcome.left,
        "warning": warning,
        **experiment.summarize(ended, experiment.settings),
        "failed": failures(outcome.rows),
    }
    folder.write_rows(outcome.rows, experiment.columns())
    print_results(console, type(experiment), summary)
    runs, _ = read_runs(folder.path, experiment.kind, outcome.rows)
    figures, data = experiment.figures(model_name(experiment.train), ended, summary, runs=runs)
    note = " ".join(filter(None, [_not_drawn(len(summary["failed"])), warning]))
    for figure in figures:
        path = folder.path / f"{figure.id}.png"
        atomic_write(path, figure.png(data, note=note))
        print_chart(console, path)
    folder.write_summary(summary)  # last: with it the sweep is finished


def _not_drawn(failed: int) -> str:
    if not failed:
        return ""
    return f"{count(failed, 'point')} failed and {'is' if failed == 1 else 'are'} not drawn."


def _end(outcome: SweepOutcome, folder: SweepFolder, points: int, console: Console) -> int:
    if not outcome.left and not outcome.stopped:
        return say_whether_all_failed(console, len(failures(outcome.rows)), points)
    interrupted = outcome.interrupted
    why = f"Stopped: {outcome.stopped}" if outcome.stopped else "Interrupted"
    print_line(
        console,
        f"{why}; {points - outcome.left} of {points} points are in {folder.path}, the same command"
        " resumes the sweep.",
    )
    return 1 if interrupted is None else 128 + interrupted
