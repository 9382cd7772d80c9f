"""`sweep`: runs the points of a sweep that are left, and shows the results."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ..arguments import path_text
from ..charts.statistics import Row, done, failures
from ..errors import UserError, error_text
from ..files import atomic_write
from ..launch.child import OUT_OF_MEMORY
from ..performance.hardware import machine as describe_machine
from ..runs.folder import unused_path
from ..runs.text import count
from ..signals import signal_of
from ..training.config import TrainConfig
from ..training.images import load_data
from ..training.settings import model_name
from ..training.worker_place import refuse_workers
from .console import Progress, print_line, rich_table
from .folder import About, StudyFolder, same_studies
from .sweep_experiment import Experiment, Point, read_rows, shared_cores_warning
from .sweep_process import can_be_resumed
from .sweep_process import run_point as run_in_process

# Of ten seconds at least, a day.
_MOST_RUNS = 10_000
_FILE_WIDTH = 160

RunPoint = Callable[[Point, Path, type[Experiment]], Row]


def sweep(
    experiment: Experiment,
    *,
    output: str | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    run_point: RunPoint = run_in_process,
    machine: Callable[[], dict[str, Any]] = describe_machine,
    console: Console | None = None,
) -> int:
    """Run a sweep, resume one, or show the results of a finished one.

    Args:
        experiment: The experiment.
        output: Its folder; `None` for an unfinished one with the same settings below `runs/`, or
            else a new one.
        fresh: Make a new one, even if an unfinished one could be resumed.
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
        instead="run it on one machine, without a launcher; --replicas 1,2 compares numbers of"
        " replicas",
    )
    # A file has no width of its own: what the tables want.
    console = console or Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    print_line(console, experiment.describe())
    check_experiment(experiment, announce=lambda line: print_line(console, line))
    if output is not None:
        folder = StudyFolder(path_text("--output", output))
        if folder.check_place() and fresh:
            raise UserError(
                f"{folder.path} is not empty: with --fresh, pass a new or empty --output"
            )
    print_line(console, "Listing this machine's devices")
    here = machine()
    about = About(kind=experiment.kind, settings=experiment.settings, machine=here)
    if output is None:
        found = None if fresh else _unfinished(about, experiment, retry_failed)
        folder = found or StudyFolder(unused_path("sweep-"))
    with folder.open(about) as resumed:
        run = _SweepRun(experiment, folder, console, retry_failed=retry_failed)
        resuming = f"Resuming the sweep in {folder.path}, {count(run.left, 'point')} left"
        print_line(console, resuming if resumed else f"Sweep folder: {folder.path}")
        run.run_points(run_point)
        run.show(here)
    return run.end()


def check_experiment(
    experiment: Experiment, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Check the settings of all runs, and their data, which are downloaded if they have to be.

    Data of the user's are read by the runs alone, as their files import TensorFlow.

    Args:
        experiment: The experiment.
        announce: Called with lines about a download.

    Raises:
        UserError: There are too many runs, one of them would be refused, its data cannot be found,
            or its speed could not be measured.
    """
    runs = len(experiment.round(0)) * experiment.repetitions
    if runs > _MOST_RUNS:
        raise UserError(
            f"received a sweep of {runs:,} runs, at most {_MOST_RUNS:,} are possible: pass fewer"
            " values, rounds or seeds"
        )
    # Rounds differ in nothing but the seed, which is the largest in the last.
    last = experiment.round(experiment.repetitions - 1)
    configs = [TrainConfig.from_dict({**point.config}) for point in last]
    for config in configs[:1]:  # they have the same data
        if config.model is None:
            data = load_data(config, announce=announce, or_sample=False)
            images = len(data.train_images)
            if images < experiment.timed_batch:
                raise UserError(
                    f"{images:,} training images do not fill a global batch of"
                    f" {experiment.timed_batch:,}, so that its speed cannot be measured: drop the"
                    " largest batch or number of replicas"
                )


def _unfinished(about: About, experiment: Experiment, retry_failed: bool) -> StudyFolder | None:
    """The newest sweep below `runs/` that is the same and has points to run, or no summary."""
    for folder in same_studies(about):
        with contextlib.suppress(UserError):  # damaged
            rows = read_rows(folder, type(experiment))
            left = len(rows) < len(experiment.points()) or folder.read_summary() is None
            if left or (retry_failed and any(row["status"] == "failed" for row in rows)):
                return folder
    return None


class _SweepRun:
    """The points of a sweep: those that ended in earlier calls, and those that are left.

    Attributes:
        interrupted: The signal that ended it; `None` if none did.
        stopped: Why it stopped early; empty where it did not.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: StudyFolder,
        console: Console,
        *,
        retry_failed: bool,
    ) -> None:
        self.experiment, self.folder, self.console = experiment, folder, console
        self.points = experiment.points()
        self.interrupted: signal.Signals | None = None
        self.stopped = ""
        names = {point.name for point in self.points}
        self._rows = {
            row["name"]: row
            for row in read_rows(folder, type(experiment))
            if row["name"] in names and not (retry_failed and row["status"] == "failed")
        }

    @property
    def rows(self) -> list[Row]:
        """The rows of all points that ended, in the order of the points."""
        return [self._rows[point.name] for point in self.points if point.name in self._rows]

    @property
    def left(self) -> int:
        """How many points remain."""
        return len(self.points) - len(self._rows)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Names and errors of the points that failed."""
        return failures(self.rows)

    def run_points(self, run_point: RunPoint) -> None:
        """Run the remaining points, one after the other.

        A point that fails gets a row with its error, and the next one is run. A full disk ends the
        sweep, as every further point would fail; so do Ctrl-C, SIGTERM and SIGHUP. None leaves a
        row for the point that it hits, which is run when the sweep is started again.
        """
        progress = Progress(
            lambda line: print_line(self.console, line),
            noun="point",
            total=len(self.points),
            ended=len(self._rows),
            console=self.console if self.console.is_terminal else None,
        )
        with progress:
            try:
                for point in self.points:
                    if point.name not in self._rows:
                        progress.begin(point.name)
                        row = self._run_point(point, run_point)
                        progress.end(_in_words(row))
            except KeyboardInterrupt as error:
                self.interrupted = signal_of(error)
            except OSError as error:
                self._stop(error)

    def _run_point(self, point: Point, run_point: RunPoint) -> Row:
        path = self.folder.path / "points" / point.name
        if not can_be_resumed(path, point.config):
            if path.is_dir():  # of an interrupted run
                shutil.rmtree(path)
            path.mkdir(parents=True)
        row = self._without_memory(point) or run_point(point, path, type(self.experiment))
        self.folder.write_rows([*self._rows.values(), row], self.experiment.columns())
        self._rows[point.name] = row
        return row

    def _without_memory(self, point: Point) -> Row | None:
        """A row for a repetition of what ran out of memory: it would again, and may take long."""
        for other in self.points:
            row = self._rows.get(other.name)
            if row is None or other.group != point.group or row["status"] != "failed":
                continue
            if str(row["error"]).startswith(OUT_OF_MEMORY):
                error = f"{OUT_OF_MEMORY}, as {other.name}; not run again"
                return row | {"name": point.name, **point.axes, "error": error}
        return None

    def _stop(self, error: OSError) -> None:
        """Note why files cannot be written."""
        path = self.folder.path
        try:
            where = f"{shutil.disk_usage(path).free / 2**20:,.0f} MiB free in {path}"
        except OSError as gone:  # somebody removed the folder, or its disk
            where = f"{path}: {error_text(gone)}"
        self.stopped = f"{error_text(error)} ({where})"

    def show(self, machine: dict[str, Any]) -> None:
        """Show tables, and write rows, charts and the summary; also of a sweep cut short."""
        if not self.rows or self.stopped:
            return
        try:
            self._show(machine)
        except OSError as error:
            self._stop(error)

    def _show(self, machine: dict[str, Any]) -> None:
        experiment, failed = self.experiment, len(self.failed)
        ended, warning = done(self.rows), shared_cores_warning(machine, self.rows)
        summary = {
            "points_left": self.left,
            "warning": warning,
            **experiment.summarize(ended, experiment.settings),
            "failed": self.failed,
        }
        self.folder.write_rows(self.rows, experiment.columns())
        for table in experiment.tables(summary):
            self.console.print(rich_table(table), highlight=False)
            for line in table.note.splitlines():
                self.console.print(Text(line))
        for one in self.failed:
            self.console.print(Text(f"Failed: {one['name']}: {one['error']}"))
        if warning:
            self.console.print(Text(f"Warning: {warning}"))
        hidden = f"{count(failed, 'point')} failed and {'is' if failed == 1 else 'are'} not drawn."
        note = " ".join(filter(None, [hidden if failed else "", warning]))
        for figure in experiment.figures(ended, summary):
            path = self.folder.path / f"{figure.id}.png"
            atomic_write(path, figure.png(of=model_name(experiment.train), note=note))
            print_line(self.console, f"Chart: {path}")
        self.folder.write("summary.json", summary)  # last: with it the sweep is finished

    def end(self) -> int:
        """Say how the sweep ended where it did not go well; returns the exit code."""
        every = len(self.points)
        if self.left or self.stopped:
            print_line(
                self.console,
                f"{f'Stopped: {self.stopped}' if self.stopped else 'Interrupted'};"
                f" {every - self.left} of {every} points are in {self.folder.path}, the same"
                " command resumes the sweep.",
            )
            return 1 if self.interrupted is None else 128 + self.interrupted
        if len(self.failed) < every:
            return 0
        which, them = ("The only point", "it") if every == 1 else (f"All {every} points", "them")
        print_line(self.console, f"{which} failed: --retry-failed runs {them} again")
        return 1


def _in_words(row: Row) -> str:
    """The result of a point in a few words."""
    if row["status"] == "failed":
        return f"failed: {row['error']}"
    words = []
    if row["images_per_sec"] is not None:
        words.append(f"{row['images_per_sec']:,.0f} images/s")
    if row["diverged"]:
        words.append("target not met: the loss was not finite")
    elif row["reached_target"] is not None:
        words.append(
            f"target met in epoch {row['epochs_to_target']}, {row['seconds_to_target']:.1f} seconds"
            if row["reached_target"]
            else f"target not met, best {row['best_val_accuracy']:.3f}"
        )
    return ", ".join(words) or "done"
