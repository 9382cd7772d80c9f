"""Trials that end at once, in place of processes."""

import csv
import io
import json
import shutil

from kdist.study.sweep_kinds import ThroughputSweep
from kdist.study.sweep_run import sweep
from report_folders import SUMMARY
from rich.console import Console

MACHINE = {"cpu": "some CPU", "cores": 2, "devices": ["CPU:0 some CPU"], "date": "2026-11-21"}

SMALL = {"dataset": "sample", "depth": 10}


def done_row(point, **values):
    """The row of a point whose steps take 0.1 seconds and 1 ms an image."""
    batch = point.columns["global_batch"]
    rate = batch / (0.1 + batch / 1000)
    return (
        point.columns
        | {"status": "done", "images_per_sec": rate, "images_per_step": batch}
        | {"seconds": 1.0, "epochs": 4, "diverged": False}
        | values
    )


def write_run_of_row(folder, row, settings):
    """A run folder of four epochs from which the row can be read."""
    folder.mkdir(parents=True)
    epochs = [
        {"epoch": at, "seconds": row["seconds"] * at / 4, "images_per_sec": row["images_per_sec"]}
        for at in range(1, 5)
    ]
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, epochs[0])
        writer.writeheader()
        writer.writerows(epochs)
    validate = row["reached_target"] is not None
    (folder / "config.json").write_text(json.dumps({**settings, "validate": validate}))
    summary = SUMMARY | {
        "training_images": row["images_per_step"],
        "seconds": row["seconds"],
        "replicas": row["replicas"],
        "global_batch": row["global_batch"],
        "met_epoch": row["epochs_to_target"],
        "met_seconds": row["seconds_to_target"],
        "best_val_accuracy": row["best_val_accuracy"],
        "devices": ["CPU:0"],
    }
    (folder / "summary.json").write_text(json.dumps(summary))


class FakeProcess:
    """A process that has ended."""

    has_ended = True

    def __init__(self, trial, error=""):
        self.trial, self.error = trial, error

    def find_error(self):
        return self.error

    def kill(self):
        pass


class FakeRuns:
    """Stands in for `TrialProcess`: notes the names of trials, and does as `at` says."""

    def __init__(self):
        self.names = []
        self.at = {}

    def __call__(self, trial, folder, share):
        self.names.append(trial.name)
        values = self.at.get(trial.name, {})
        if isinstance(values, BaseException):
            raise values
        if values.get("error"):
            return FakeProcess(trial, values["error"])
        shutil.rmtree(folder, ignore_errors=True)
        write_run_of_row(folder / "run", done_row(trial, **values), trial.config)
        return FakeProcess(trial)


def throughput(**values):
    settings = {"train": SMALL, "batch_sizes": [8, 16], "replicas": [1, 2], "epochs": 3}
    return ThroughputSweep(**{**settings, "rounds": 2, **values})


def run(runs, experiment=None, *, machine=MACHINE, **options):
    """Exit code and output of a sweep in the current folder."""
    out = io.StringIO()
    console = Console(file=out, width=200)
    outcome = sweep(
        experiment or throughput(),
        start=runs,
        machine=lambda: machine,
        console=console,
        **options,
    )
    return outcome.exit_code, out.getvalue()
