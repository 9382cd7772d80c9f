"""Weights & Biases: a run that records the values of epochs and steps, and no private data."""

import json
import math
import os
import secrets
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import wandb
from wandb.integration.keras import WandbModelCheckpoint

from ..errors import error_line
from ..files import atomic_write
from ..versions import versions
from .tracker import BestValues, Tracker, device_of, learning_rate
from .wandb_account import wandb_mode

if TYPE_CHECKING:
    from ..callbacks import TrainingTelemetry

PROJECT = "kdist"
# Time limits for `wandb.init` to reach the server, and for the end of a run to upload the rest: a
# lost network delays training by a minute and does not stop training. Files that were not uploaded
# are kept, for `wandb sync`.
INIT_SECONDS = 20
FINISH_SECONDS = 60


# By default wandb records the command line, installed packages, git remotes, the user's name,
# printed output and the main script. Each of these may contain a key.
PRIVATE_SETTINGS: dict[str, Any] = {
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "disable_job_creation": True,
    "label_disable": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "init_timeout": INIT_SECONDS,
    "finish_timeout": FINISH_SECONDS,
}


def begin_run(
    folder: Path,
    *,
    config: Mapping[str, Any],
    group: str | None = None,
    name: str | None = None,
    job_type: str | None = None,
    run_id: str | None = None,
) -> Any:
    """Start a run, online if there is an account and the server answers, otherwise offline.

    Args:
        folder: The files are written to `<folder>/wandb`.
        config: Settings of the run.
        group: Group of the run.
        name: Name of the run.
        job_type: Kind of run.
        run_id: The id of a run that is resumed. Offline, the resumed run writes to a new folder,
            and `wandb sync` adds the folder to the same run.

    Returns:
        The `wandb.Run`; afterwards `wandb.run` is this run, too.
    """
    mode = wandb_mode()
    settings = PRIVATE_SETTINGS | {"root_dir": str(folder.absolute())}
    # A run of a sweep, or a run with `WANDB_RUN_ID`, has an id already.
    named = {"WANDB_RUN_ID", "WANDB_SWEEP_ID"} & set(os.environ)
    given = {"config": dict(config), "group": group, "name": name, "job_type": job_type}
    online: dict[str, Any] = {}
    if run_id is not None:
        given["id"], online = run_id, {"resume": "allow"}
    elif not named:
        online = {"id": secrets.token_hex(4)}
    before = set((folder / "wandb").glob("run-*"))
    if mode not in ("offline", "disabled"):
        try:
            return _init(given | online, settings | {"mode": mode, "quiet": True})
        except Exception as error:
            warnings.warn(
                f"W&B cannot be reached ({error_line(error)}): the run is saved offline",
                stacklevel=2,
            )
            mode = "offline"
            # The failed start left an empty file. `wandb sync` would send the file as a run.
            if not named:
                mine = given.get("id") or online["id"]
                for left in set((folder / "wandb").glob(f"run-*-{mine}")) - before:
                    shutil.rmtree(left, ignore_errors=True)
    return _init(given, settings | {"mode": mode, "silent": True})


def _init(given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    # A sweep has its own project; wandb warns if a different project is passed.
    named = {"WANDB_PROJECT", "WANDB_SWEEP_ID"} & set(os.environ)
    return wandb.init(
        project=None if named else PROJECT, settings=wandb.Settings(**settings), **given
    )


_NOTHING: dict[str, Any] = {"id": None, "epoch": 0, "batch": 0, "telemetry": 0, "rows": 0}


class WandbRecord:
    """Record of the values sent to W&B: a small file beside W&B's own files.

    With this file, a resumed run need not ask a server; an offline run has no server. The record is
    written before a value is sent: a value that is sent twice is drawn twice in the charts, whereas
    a value that a killed process did not send is a single missing point.

    Args:
        folder: The run folder; the file is `wandb/sent.json` in it.

    Attributes:
        values: `id` of the W&B run, the last `epoch` and the last steps of the axes `batch` and
            `telemetry` that were sent, and the number of `rows`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "wandb" / "sent.json"
        self.values = dict(_NOTHING)

    def begin(self, *, continues: bool) -> None:
        """Start a record, or read the existing record.

        Args:
            continues: Whether the run may have been begun by another process.
        """
        self.values = dict(_NOTHING)
        if continues and self._path.exists():
            self.values |= json.loads(self._path.read_text(encoding="utf-8"))

    def note(self, **values: Any) -> None:
        """Write the values of the record before they are sent."""
        self.values |= values
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps(self.values))

    def is_new(self, name: str, number: int) -> bool:
        """Whether an epoch or a step was not sent yet; if so, note it as sent, and add a row.

        Args:
            name: `"epoch"`, `"batch"` or `"telemetry"`.
            number: Number of the epoch or step, from 1.
        """
        if number <= self.values[name]:
            return False
        self.note(**{name: number, "rows": self.values["rows"] + 1})
        return True


# The step metric of each axis.
_AXES = {"epoch": "epoch/epoch", "batch": "batch/batch_step", "telemetry": "telemetry/step"}

# Runs that trackers have begun and not finished. After a fit that failed they stay open.
_open_runs: list[Any] = []


class WandbTracker(Tracker):
    """Tracks a run with W&B: settings, metrics of each epoch, the best model and the objective.

    The values of an epoch are `epoch/<name>` over `epoch/epoch`, counted from 1; values within
    epochs are `batch/<name>` over `batch/batch_step`, and `telemetry/<name>` over `telemetry/step`.
    The run's summary also has the best accuracies and losses (`best_val_accuracy`, …), `best_epoch`
    and `seconds`. The run's config also has `device` and `versions`.

    A run that is resumed continues in the same W&B run, and sends no value twice.

    Args:
        folder: The run's files are written to `<folder>/wandb`.
        config: Settings of the run; the number of replicas is added.
        group: Group of the run.
        name: Name of the run.
        job_type: Kind of run.
        objective: Name of a value in `logs`, and `"max"` or `"min"`. The best value so far is
            `objective` in the run's summary.
        log_model: Save the model as an artifact after each epoch that is the best so far, by the
            objective or, without an objective, by `val_loss`; after every epoch if `logs` lacks
            the value. Opening the file requires kdist to be imported.
        telemetry: As in `Tracker`.
        verbose: 0 does not print the URL or the folder of the run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: Mapping[str, Any],
        group: str | None = None,
        name: str | None = None,
        job_type: str | None = None,
        objective: tuple[str, str] | None = None,
        log_model: bool = False,
        telemetry: "TrainingTelemetry | None" = None,
        verbose: int = 1,
    ) -> None:
        super().__init__("W&B", telemetry=telemetry)
        self.folder = folder
        self.record = WandbRecord(folder)
        self.config = dict(config)
        self.run_options: dict[str, Any] = {"group": group, "name": name, "job_type": job_type}
        self.objective = objective
        self.log_model = log_model
        self.verbose = verbose
        self._run: Any = None
        self._own = False
        self._best = math.nan
        self._best_values = BestValues()
        self._checkpoint: Any = None

    def begin(self) -> list[Any]:
        """Start the run, or use the active one."""
        strategy = self.model.distribute_strategy
        made_on = {"device": device_of(strategy), "versions": versions()}
        config = {"replicas": strategy.num_replicas_in_sync} | made_on | self.config
        if self.objective is not None:
            config["objective"] = " ".join(reversed(self.objective))
        self._best, self._best_values = math.nan, BestValues()
        if wandb.run is not None and wandb.run in _open_runs:
            wandb.run.finish(exit_code=1)
        _open_runs.clear()
        self._own = wandb.run is None
        self.record.begin(continues=self.continues)
        if self._own:
            sent = self.record.values
            self._run = begin_run(self.folder, config=config, run_id=sent["id"], **self.run_options)
            _open_runs.append(self._run)
            # Online, the server knows the number of rows.
            if sent["rows"] and self._run.offline:
                self._run.log({}, step=sent["rows"])
            self.record.note(id=self._run.id)
        else:
            self._run = wandb.run
            # The config of an active run keeps its values, such as the parameters of a sweep.
            missing = {n: v for n, v in config.items() if n not in self._run.config}
            self._run.config.update(missing)
        if self.log_model:
            path = self.folder / "wandb" / "best_model.keras"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpoint = WandbModelCheckpoint(path)
            self._checkpoint.set_model(self.model)
        for axis, step in _AXES.items():
            self._run.define_metric(step)
            self._run.define_metric(f"{axis}/*", step_metric=step)
        return []

    def is_new(self, axis: str, step: int) -> bool:
        """Whether the step was not sent yet."""
        return self.record.is_new(axis, step)

    def scalars(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Send the values of a step; histograms without values are left out."""
        sent = {
            f"{axis}/{name}": wandb.Histogram(value) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
            if np.size(value)
        }
        self._run.log(sent | {_AXES[axis]: step})

    def state(self) -> dict[str, Any]:
        """Return the best value of the objective and the best values of all metrics so far."""
        return {"best": self._best, "best_values": self._best_values.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the best values in `state`."""
        self._best = state["best"]
        self._best_values.restore(state["best_values"])

    def at_epoch_end(self, epoch: int, logs: dict[str, Any], *, is_new: bool) -> None:
        """Send the epoch, the best values so far, and the model if it is requested and the best."""
        if is_new:
            self.scalars("epoch", epoch, {**logs, "learning_rate": learning_rate(self.model)})
        self._run.summary.update(
            self._best_values.update(epoch, logs) | {"seconds": logs["seconds"]}
        )
        name, direction = self.objective or ("val_loss", "min")
        value = float(logs.get(name, math.nan))
        better = value > self._best if direction == "max" else value < self._best
        if better or math.isnan(self._best):
            self._best = value
            if self.objective is not None and not math.isnan(value):
                self._run.summary["objective"] = value
            # wandb's own `save_best_only` would save the best model again under the name of every
            # later epoch.
            if self._checkpoint is not None and is_new:
                self._checkpoint.on_epoch_end(epoch, logs)

    def close(self, exit_code: int) -> None:
        """Finish the run, if the tracker started it, and print its URL or folder."""
        run, self._run = self._run, None
        if run is None or not self._own:
            return
        where = f"saved in {Path(run.dir).parent}; upload it with `wandb sync`"
        if not run.offline:
            where = run.url
        _open_runs.clear()
        run.finish(exit_code=exit_code)
        if self.verbose and not run.disabled:
            print(f"W&B run: {where}", flush=True)
