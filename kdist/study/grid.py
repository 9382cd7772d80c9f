"""`sweep`: runs the points of a grid that are left, and shows the results."""

import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.groups import Row, done, failures
from ..charts.tables import ResultsTable
from ..data.datasets import needs_no_download
from ..errors import UserError, error_text
from ..files import atomic_write
from ..launch.child import OUT_OF_MEMORY
from ..launch.options import MOST_WORKERS
from ..launch.shares import divide, visible_cores, visible_gpus
from ..performance.hardware import machine as describe_machine
from ..runs.text import count
from ..signals import signal_of
from ..training.config import TrainConfig
from ..training.images import load_data
from ..training.settings import model_name
from ..training.workers import refuse_workers
from .experiments import Experiment, ExperimentOrMaker, Point, shared_cores_warning
from .grid_folder import (
    Sweep,
    SweepFolder,
    check_same,
    earlier_results,
    holds_sweep,
    open_folder,
    read_point,
    read_runs,
    read_summary,
    read_sweep,
)
from .grid_progress import Progress
from .points import can_be_resumed
from .points import run_point as run_in_process

# Of ten seconds at least, a day.
_MOST_RUNS = 10_000


def check_experiment(experiment: Experiment) -> None:
    """Check the settings of all runs, and their data where it need not be downloaded.

    Data of the user's are read by the runs alone, as their files import TensorFlow.

    Raises:
        UserError: There are too many runs, one of them would be refused, or its speed could not be
            measured.
    """
    runs = len(experiment.round(0)) * experiment.repetitions
    if runs > _MOST_RUNS:
        raise UserError(
            f"received a sweep of {runs:,} runs, at most {_MOST_RUNS:,} are possible: pass fewer"
            " values, rounds or seeds"
        )
    _check_workers(experiment)
    # Rounds differ in nothing but the seed, which is the largest in the last.
    configs = [
        TrainConfig.from_dict({**point.config})
        for point in experiment.round(experiment.repetitions - 1)
    ]
    for config in configs[:1]:  # they have the same data
        if config.model is None and needs_no_download(config.dataset, config.data_dir):
            _check_batches(experiment, len(load_data(config, announce=lambda _: None).train_images))


def _check_workers(experiment: Experiment) -> None:
    most = max(experiment.workers)
    if most > MOST_WORKERS:
        raise UserError(f"received --workers {most}: pass numbers from 1 to {MOST_WORKERS}")


def check_shares(workers: Sequence[int]) -> None:
    """Check that this machine's GPUs can be divided among workers.

    Args:
        workers: Numbers of workers, each of one point.

    Raises:
        UserError: They cannot share the GPUs evenly.
    """
    for number in workers:
        if number > 1:
            divide(workers=number, gpus=visible_gpus(os.environ), cores=visible_cores())


def _check_batches(experiment: Experiment, images: int) -> None:
    if images < experiment.timed_batch:
        raise UserError(
            f"{images:,} training images do not fill a global batch of {experiment.timed_batch:,},"
            " so that its speed cannot be measured: drop the largest batch or number of replicas"
        )


def print_line(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_results(
    console: Console, experiment: type[Experiment], summary: Mapping[str, Any]
) -> None:
    """Print the tables of a summary, the points that failed, and the warning."""
    for table in experiment.tables(summary):
        _print_table(console, table)
    for one in summary["failed"]:
        console.print(Text(f"Failed: {one['name']}: {one['error']}"))
    if summary["warning"]:
        console.print(Text(f"Warning: {summary['warning']}"))


def print_chart(console: Console, path: Path) -> None:
    """Print where a chart is."""
    print_line(console, f"Chart: {path}")


def say_whether_all_failed(console: Console, failed: int, points: int) -> int:
    """Print that every point failed, if so.

    Returns:
        The sweep's exit code: 1 if there is no result, else 0.
    """
    if failed < points:
        return 0
    which = "The only point" if points == 1 else f"All {points} points"
    print_line(
        console, f"{which} failed: --retry-failed runs {'it' if points == 1 else 'them'} again"
    )
    return 1


def _print_table(console: Console, table: ResultsTable) -> None:
    shown = Table(*table.columns, title=table.title)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown, highlight=False)
    for line in table.note.splitlines():
        console.print(Text(line))


RunPoint = Callable[[Point, Path, type[Experiment]], Row]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How a sweep ended.

    Args:
        rows: Of all points that ended, those of earlier calls too, in the order of the points.
        left: How many points remain.
        interrupted: The signal that ended it; `None` if none did.
        stopped: Why it stopped early; empty where it did not.
    """

    rows: list[Row]
    left: int
    interrupted: signal.Signals | None = None
    stopped: str = ""


def run_sweep(
    experiment: Experiment,
    folder: SweepFolder,
    *,
    run_point: RunPoint,
    console: Console,
    retry_failed: bool = False,
) -> SweepOutcome:
    """Run the remaining points of a sweep, one after the other.

    A point that fails gets a row with its error, and the next one is run. A full disk ends the
    sweep, as every further point would fail; so do Ctrl-C, SIGTERM and SIGHUP. None leaves a row
    for the point that it hits, which is run when the sweep is started again.

    Args:
        experiment: What is to be run.
        folder: The sweep's.
        run_point: Runs one point in its folder, as `run_point`; it is empty,
            unless `can_be_resumed`.
        console: Takes the table and the lines about the progress.
        retry_failed: Run points again that failed in an earlier call.

    Returns:
        The rows; tables and charts of a sweep that stopped halfway are those of its rows.
    """
    points = experiment.points()
    rows, skipped = ended_rows(experiment, folder.path)
    for line in skipped:
        console.print(line, markup=False, highlight=False)
    if retry_failed:
        rows = {name: row for name, row in rows.items() if row["status"] != "failed"}
    interrupted, stopped = None, ""
    with Progress(points, rows, console) as progress:
        try:
            for point in points:
                if point.name in rows:
                    continue
                progress.begin(point)
                row = _without_memory(point, points, rows)
                path = folder.point(point.name)
                if not can_be_resumed(path, point.config):
                    path = folder.clear_point(point.name)
                row = row or run_point(point, path, type(experiment))
                folder.write_point(row)
                rows[point.name] = row
                folder.write_rows(_in_order(points, rows), experiment.columns())
                progress.end(row)
        except KeyboardInterrupt as error:
            interrupted = signal_of(error)
        except OSError as error:
            stopped = why_stopped(error, folder)
    return SweepOutcome(
        rows=_in_order(points, rows),
        left=len(points) - len(rows),
        interrupted=interrupted,
        stopped=stopped,
    )


def why_stopped(error: OSError, folder: SweepFolder) -> str:
    """Why files cannot be written, for the message."""
    why = error_text(error)
    try:
        free = shutil.disk_usage(folder.path).free / 2**20
    except OSError as gone:  # somebody removed the folder, or its disk
        return f"{why} ({folder.path}: {error_text(gone)})"
    return f"{why} ({free:,.0f} MiB free in {folder.path})"


def ended_rows(experiment: Experiment, folder: Path) -> tuple[dict[str, Row], list[str]]:
    """Read the rows of points that ended in earlier calls.

    Args:
        experiment: What is to be run.
        folder: The sweep's.

    Returns:
        The rows by the names of the points, and a line for each folder that has none.
    """
    rows: dict[str, Row] = {}
    skipped = []
    points = {point.name: point for point in experiment.points()}
    for path in sorted(folder.glob("points/*")):
        row = read_point(path, experiment.kind)
        if not isinstance(row, str):
            row = _checked(row, points.get(path.name))
        if isinstance(row, str):
            again = "; it is run again" if path.name in points else ""
            skipped.append(f"Skipped: {path.name}: {row}{again}")
        else:
            rows[path.name] = row
    return rows, skipped


def _checked(row: Row, point: Point | None) -> Row | str:
    """The row, or why it is not one of `point`."""
    if point is None:
        return "not a point of this sweep"
    for name, value in point.axes.items():
        if row[name] != value:
            return f"point.json has {name} {row[name]!r}, not {value!r}"
    return row


def _without_memory(point: Point, points: Sequence[Point], rows: dict[str, Row]) -> Row | None:
    """A row for a repetition of what ran out of memory: it would again, and may take long to."""
    for other in points:
        row = rows.get(other.name)
        if row is None or other.group != point.group or row["status"] != "failed":
            continue
        if str(row["error"]).startswith(OUT_OF_MEMORY):
            error = f"{OUT_OF_MEMORY}, as {other.name}; not run again"
            return row | {"name": point.name, **point.axes, "error": error}
    return None


def _in_order(points: Sequence[Point], rows: dict[str, Row]) -> list[Row]:
    return [rows[point.name] for point in points if point.name in rows]


def show_finished(
    experiment: ExperimentOrMaker,
    folder: Path,
    *,
    machine: Callable[..., dict[str, Any]],
    retry_failed: bool,
    console: Console,
) -> int | None:
    """Show the results of a sweep, if all its points have ended.

    Args:
        experiment: As for `sweep`.
        folder: Its folder, which may contain anything.
        machine: See `kdist.performance.hardware.machine`. The devices are taken to be those that
            the sweep ran on, as TensorFlow takes seconds to list them.
        retry_failed: Whether failed points are to be run again.
        console: Takes all output.

    Returns:
        The exit code; `None` if points are left.

    Raises:
        UserError: The folder contains another sweep, or one of another machine.
    """
    try:
        sweep = read_sweep(folder)
    except UserError:
        return None  # `open_folder` says why
    if not sweep.points:
        return None
    here = machine(devices=sweep.machine.get("devices") or [])
    asked = experiment if isinstance(experiment, Experiment) else experiment(sweep.machine)
    wanted = {"kind": asked.kind, "settings": asked.settings, "machine": here}
    check_same(sweep, json.loads(json.dumps(wanted)))
    summary = read_summary(folder)
    if summary is None or not _is_complete(sweep, asked, retry_failed):
        return None
    try:
        print_results(console, type(asked), summary)
    except (KeyError, TypeError, ValueError):  # of another version: it is summed up again
        return None
    for path in sorted(folder.glob("*.png")):
        print_chart(console, path)
    print_line(
        console,
        f"The sweep in {folder} is finished: to run it again, pass another --output",
    )
    return say_whether_all_failed(console, len(summary["failed"]), len(asked.points()))


def _is_complete(sweep: Sweep, experiment: Experiment, retry_failed: bool) -> bool:
    rows, skipped = ended_rows(experiment, sweep.path)
    failed = any(row["status"] == "failed" for row in rows.values())
    return not skipped and len(rows) == len(experiment.points()) and not (failed and retry_failed)


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
