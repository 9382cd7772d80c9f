"""Weights & Biases: a run that records the values of epochs and steps, and no private data."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import wandb

from ..errors import first_message_line
from .tracker import Tracker

PROJECT = "kdist"
# Time limits for `wandb.init` to reach the server, and for the upload of the remaining values at
# the end of a run: a lost connection delays training by a minute, and does not stop training. Files
# that were not uploaded are kept, for `wandb sync`.
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


def wandb_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return the mode of a run: `"online"`, `"offline"`, `"shared"` or `"disabled"`.

    Without `WANDB_MODE` a run is online if wandb finds an account: `WANDB_API_KEY`, an identity
    token, the netrc file, or wandb's settings. A run without an account is offline, unless
    `WANDB_MODE` is `disabled`. wandb never prompts, and does not ask its server.
    """
    requested = environment.get("WANDB_MODE", "")
    mode = {"run": "online", "dryrun": "offline"}.get(requested, requested)
    if mode in ("offline", "disabled"):
        return mode
    try:
        has_account = wandb.login(prompt=False, verify=False)
    except wandb.errors.AuthenticationError as error:
        wandb.termwarn(f"{error}; the run is saved offline")
        has_account = False
    return (mode or "online") if has_account else "offline"


def begin_run(
    folder: Path,
    *,
    config: Mapping[str, Any],
    group: str | None = None,
    name: str | None = None,
    run_id: str | None = None,
) -> Any:
    """Start a run, online if there is an account and the server answers, otherwise offline.

    The files are in `<folder>/wandb`. `run_id` is the id of a run that is resumed: offline, the
    resumed run writes to a new folder, and `wandb sync` adds the folder to the same run. Return the
    `wandb.Run`; afterwards `wandb.run` is this run, too.
    """
    mode = wandb_mode()
    settings = PRIVATE_SETTINGS | {"root_dir": str(folder.absolute())}
    given = {"config": dict(config), "group": group, "name": name, "id": run_id}
    online = {} if run_id is None else {"resume": "allow"}
    if mode not in ("offline", "disabled"):
        try:
            return _start_wandb(given | online, settings | {"mode": mode, "quiet": True})
        except Exception as error:
            warnings.warn(
                f"W&B cannot be reached ({first_message_line(error)}): the run is saved offline",
                stacklevel=2,
            )
            mode = "offline"
    return _start_wandb(given, settings | {"mode": mode, "silent": True})


def _start_wandb(given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    # A sweep of W&B has its own project; wandb warns if a different project is passed.
    named = {"WANDB_PROJECT", "WANDB_SWEEP_ID"} & set(os.environ)
    return wandb.init(
        project=None if named else PROJECT, settings=wandb.Settings(**settings), **given
    )


# The step metric of each axis.
_STEP_METRICS = {"epoch": "epoch/epoch", "batch": "batch/batch_step", "telemetry": "telemetry/step"}

# Runs that trackers have begun and not finished; a run stays open after a fit that failed.
_open_runs: list[Any] = []


class WandbTracker(Tracker):
    """Tracks a run with W&B: settings, metrics of each epoch, and the best values so far.

    The values of an epoch are `epoch/<name>` over `epoch/epoch`, counted from 1; values within
    epochs are `batch/<name>` over `batch/batch_step`, and `telemetry/<name>` over `telemetry/step`.
    The run's summary also has the best values so far (`best_val_accuracy`, …) and `seconds`. The
    run's config also has `device` and `versions`.

    A run that is resumed continues in the same W&B run; `Tracker` skips the epochs and steps that
    are in `sent.json`. A run that is already active is used, and not closed. The folder is `wandb`
    in the run's folder, as wandb chooses this name.
    """

    title: ClassVar[str] = "W&B"

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._run: Any = None
        self._started_here = False

    def start(self, environment: Mapping[str, Any]) -> None:
        """Start the run, or use the active run."""
        config = {**environment, **self.settings}
        if wandb.run is not None and wandb.run in _open_runs:
            wandb.run.finish(exit_code=1)
        _open_runs.clear()
        self._started_here = wandb.run is None
        if self._started_here:
            self._begin_run(config)
        else:
            self._run = wandb.run
            # The config of an active run keeps its values, such as the parameters of a sweep.
            missing = {
                name: value for name, value in config.items() if name not in self._run.config
            }
            self._run.config.update(missing)
        for axis, step in _STEP_METRICS.items():
            self._run.define_metric(step)
            self._run.define_metric(f"{axis}/*", step_metric=step)

    def _begin_run(self, config: Mapping[str, Any]) -> None:
        self._run = begin_run(
            self.folder.parent,
            config=config,
            group=self.group,
            name=self.name,
            run_id=self.sent.get("id"),
        )
        _open_runs.append(self._run)
        # Offline, wandb cannot ask the server for the number of rows that earlier processes have
        # written, and would count from 0 again.
        if self.sent.get("rows") and self._run.offline:
            self._run.log({}, step=self.sent["rows"])
        self.write_sent_file(id=self._run.id)

    def log_values(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Send the values of a step, without empty histograms."""
        if axis == "best":
            self._run.summary.update(dict(values))
            return
        row = {
            f"{axis}/{name}": wandb.Histogram(value) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
            if np.size(value)
        }
        self._run.log(row | {_STEP_METRICS[axis]: step})
        if axis == "epoch":
            self._run.summary["seconds"] = values["seconds"]

    def finish_run(self, exit_code: int) -> None:
        """Finish the run, if the tracker started it, and print its URL or folder."""
        run, self._run = self._run, None
        if run is None or not self._started_here:
            return
        location = f"saved in {Path(run.dir).parent}; upload it with `wandb sync`"
        if not run.offline:
            location = run.url
        _open_runs.clear()
        run.finish(exit_code=exit_code)
        if self.verbose and not run.disabled:
            print(f"W&B run: {location}", flush=True)
