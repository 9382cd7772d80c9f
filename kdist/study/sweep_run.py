"""`sweep`: runs the remaining points of a sweep, and shows the results."""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ..arguments import local_path
from ..errors import UserError, message_without_path
from ..strategies.hardware import describe_machine
from ..training.config import TrainConfig
from ..training.printed_lines import format_count
from ..training.run import load_data
from ..training.run_folder import RUNS
from ..training.run_record import RunRecord
from ..workers.tf_config import refuse_workers
from .experiment import Experiment, describe_shared_cores
from .run_trials import Outcome, StartTrial, TrialRunner, print_end
from .study_folder import Row, StudyFolder, StudyInfo
from .tables import print_line, print_table
from .trial import Trial, read_measurements
from .trial_process import TrialProcess, remove_checkpoints

_WIDTH_IN_FILES = 160


def sweep(
    experiment: Experiment,
    *,
    output: str | None = None,
    start: StartTrial = TrialProcess,
    machine: Callable[[], dict[str, Any]] = describe_machine,
    console: Console | None = None,
) -> Outcome:
    """Run a sweep, resume an interrupted sweep, or show the results of a finished sweep.

    Args:
        experiment: The kind and the settings of the sweep.
        output: The folder; by default `runs/sweep-KIND-HASH`, with a hash of the settings.
        start: Starts the process of a point.
        machine: Describes the machine of the sweep.
        console: Prints all output.

    Raises:
        UserError: Invalid settings, or another sweep in the folder; nothing was run then.
    """
    refuse_workers(
        os.environ,
        "kdist sweep",
        instead="run it on one machine, without a launcher; --replicas 1,2 compares numbers of"
        " replicas",
    )
    console = console or Console(width=None if sys.stdout.isatty() else _WIDTH_IN_FILES)
    print_line(console, experiment.describe())
    check_experiment(experiment, announce=lambda line: print_line(console, line))
    path = default_folder(experiment) if output is None else local_path("--output", output)
    folder = StudyFolder(path)
    folder.check_place()
    print_line(console, "Listing this machine's devices")
    devices = machine()
    info = StudyInfo(kind=experiment.kind, settings=experiment.settings, machine=devices)
    with folder.open(info) as resumed:
        points = SweepPoints(experiment, folder)
        points_left = format_count(len(points.points_to_run), "point")
        resuming = f"Resuming the sweep in {folder.path}, {points_left} left"
        print_line(console, resuming if resumed else f"Sweep folder: {folder.path}")
        outcome = TrialRunner(points, folder, points.rows, console, start=start).run()
        if points.rows and not outcome.stop_reason:
            try:
                folder.write_rows(points.rows)  # in the order of the points
            except OSError as error:
                outcome = dataclasses.replace(outcome, stop_reason=message_without_path(error))
            _print_results(points, devices, console)
    print_end(outcome, folder.noun, console)
    if points.failed and outcome.is_whole:
        print_line(console, "Run the same command again to repeat the failed points.")
    return outcome


def check_experiment(
    experiment: Experiment, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Check the settings of a round of runs, and download their data if necessary.

    A user's data are not checked here, as the user's file imports TensorFlow.

    Args:
        experiment: The kind and the settings of the sweep.
        announce: Called with lines about a download.

    Raises:
        UserError: The settings of a run are invalid, its data cannot be found, or its speed could
            not be measured.
    """
    # Rounds differ only in the seed, and the last round has the largest seed.
    last = experiment.make_round(experiment.repetitions - 1)
    config, *_ = [TrainConfig.from_dict({**point.config}) for point in last]
    if config.model is None:
        images = len(load_data(config, announce=announce, may_use_sample=False).train_images)
        largest = max(point.columns["global_batch"] for point in last)
        if images < largest and not experiment.trains:
            raise UserError(
                f"a global batch of {largest:,} needs more than the {images:,} training images,"
                " so its speed cannot be measured: leave out the largest batch size or number of"
                " replicas"
            )


def default_folder(experiment: Experiment) -> Path:
    """Return the default folder of a sweep, with a hash of its settings in the name."""
    settings = json.dumps(experiment.settings, sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    return RUNS / f"sweep-{experiment.kind}-{digest}"


class SweepPoints:
    """The points of a sweep: the points to run, and the rows of points that ended.

    Args:
        experiment: The kind and the settings of the sweep.
        folder: The folder of the sweep.
    """

    def __init__(self, experiment: Experiment, folder: StudyFolder) -> None:
        self.experiment, self._folder = experiment, folder
        self._points = experiment.make_points()
        done = [row for row in folder.read_rows() if row["status"] == "done"]
        self._rows = {row["name"]: row for row in done}
        self.points_to_run = [point for point in self._points if point.name not in self._rows]
        self.total: int | None = len(self._points)

    @property
    def rows(self) -> list[Row]:
        """The rows of the points that ended, in the order of the points."""
        return [self._rows[point.name] for point in self._points if point.name in self._rows]

    @property
    def failed(self) -> list[Row]:
        """The rows of the points that failed."""
        return [row for row in self.rows if row["status"] == "failed"]

    def next_trial(self) -> Trial | None:
        """Return the next point."""
        return self.points_to_run.pop(0) if self.points_to_run else None

    def read_result(self, trial: Trial, run: RunRecord) -> Row:
        """Return the columns that are read from the run of a point; see `Study`."""
        result = read_measurements(run, may_diverge=self.experiment.trains)
        batch = trial.columns["global_batch"]
        if trial.config.get("model") and result["global_batch"] != batch:
            raise UserError(
                f"the model's data function returns batches of {result['global_batch']}, expected"
                f" {batch}: give the function an argument batch_size, or let it return arrays"
            )
        missing = [name for name in self.experiment.required_columns if result[name] is None]
        if missing:
            raise UserError(f"the run has no {missing[0]}")
        return result

    def describe_row(self, row: Row) -> str:
        """Return the result of a point in a few words."""
        if row["status"] == "failed":
            return f"failed: {row['error']}"
        parts = []
        if row["images_per_sec"] is not None:
            parts.append(f"{row['images_per_sec']:,.0f} images/s")
        if row["diverged"]:
            parts.append("target not met: the loss was not finite")
        elif row["reached_target"]:
            seconds = f"{row['seconds_to_target']:.1f} seconds"
            parts.append(f"target met in epoch {row['epochs_to_target']}, {seconds}")
        elif row["reached_target"] is not None:
            parts.append(f"target not met, best {row['best_val_accuracy']:.3f}")
        return ", ".join(parts) or "done"

    def end_trial(self, trial: Trial, row: Row) -> None:
        """Record the row, and remove the checkpoints of a point that is done.

        A failed point keeps its checkpoints, so that it can be resumed.
        """
        self._rows[trial.name] = row
        if row["status"] == "done":
            remove_checkpoints(self._folder.trial_folder(trial.name))


def _print_results(points: SweepPoints, machine: dict[str, Any], console: Console) -> None:
    experiment = points.experiment
    ended = [row for row in points.rows if row["status"] == "done"]
    if ended:
        print_table(console, experiment.table(experiment.summarize(ended), experiment.settings))
    for row in points.failed:
        print_line(console, f"Failed: {row['name']}: {row['error']}")
    warning = describe_shared_cores(machine, points.rows)
    if warning:
        print_line(console, f"Warning: {warning}")
