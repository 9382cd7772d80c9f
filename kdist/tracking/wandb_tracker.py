"""Weights & Biases: a run an epoch at a time, through wandb's own Keras callbacks."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb
from wandb.integration.keras import WandbMetricsLogger, WandbModelCheckpoint

from .every_batches import EveryBatches
from .tracker import Tracker
from .wandb_run import begin_run

_TITLE = "W&B"


class WandbTracker(Tracker):
    """Keeps a W&B run: config, the metrics of each epoch, the best model, the objective.

    The values of an epoch are `epoch/<name>` over `epoch/epoch`, from 0, as wandb's
    `WandbMetricsLogger` has them.

    Args:
        folder: The run's files go to `<folder>/wandb`.
        config: What is shown as its settings; the replicas are added.
        group: Under which W&B groups it.
        name: What it is called.
        job_type: What kind of run it is.
        objective: A value of `logs` and `"max"` or `"min"`: its best so far is `objective` in the
            run's summary.
        log_model: Keep the model of each epoch that was the best so far as an artifact: by the
            objective, without one by `val_loss`; of every epoch, where there is no value. The file
            opens where kdist is imported.
        save_code: Also send the main script.
        verbose: 0 does not say where the run is.
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
        save_code: bool = False,
        verbose: int = 1,
    ) -> None:
        super().__init__(_TITLE)
        self.folder = folder
        self.config = dict(config)
        self.run_options: dict[str, Any] = {
            "group": group,
            "name": name,
            "job_type": job_type,
            "save_code": save_code,
        }
        self.objective = objective
        self.log_model = log_model
        self.verbose = verbose
        self._run: Any = None
        self._own = False
        self._best = math.nan
        self._checkpoint: Any = None

    def begin(self) -> list[Any]:
        """Begin the run, or take the one that is active."""
        config = {"replicas": self.model.distribute_strategy.num_replicas_in_sync} | self.config
        if self.objective is not None:
            config["objective"] = " ".join(reversed(self.objective))
        self._best = math.nan
        self._own = wandb.run is None
        if self._own:
            self._run = begin_run(self.folder, config=config, **self.run_options)
        else:
            self._run = wandb.run
            # What it has already stays, such as a sweep's parameters.
            missing = {n: v for n, v in config.items() if n not in self._run.config}
            self._run.config.update(missing)
        if self.log_model:
            path = self.folder / "wandb" / "best_model.keras"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpoint = WandbModelCheckpoint(path)
            self._checkpoint.set_model(self.model)
        return [WandbMetricsLogger("epoch")]

    def at_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Keep the best so far: the objective's value and, if it is asked for, the model."""
        name, direction = self.objective or ("val_loss", "min")
        value = float(logs.get(name, math.nan))
        better = value > self._best if direction == "max" else value < self._best
        if better or math.isnan(self._best):
            self._best = value
            if self.objective is not None and not math.isnan(value):
                self._run.summary["objective"] = value
            # With wandb's own `save_best_only` the best model is kept again under the name of
            # every later epoch.
            if self._checkpoint is not None:
                self._checkpoint.on_epoch_end(epoch, logs)

    def close(self, exit_code: int) -> None:
        """Finish the run, if it is the tracker's, and say where it is."""
        run, self._run = self._run, None
        if run is None or not self._own:
            return
        where = f"kept in {Path(run.dir).parent}; `wandb sync` sends it"
        if not run.offline:
            where = run.url
        run.finish(exit_code=exit_code)
        if self.verbose and not run.disabled:
            print(f"W&B run: {where}", flush=True)


class WandbBatches(EveryBatches):
    """Metrics of single steps: `batch/<name>` over `batch/batch_step`, the steps trained.

    wandb's own logger counts executions, of several steps each, and has the epochs on no axis of
    their own when it writes batches.
    """

    def __init__(self, every: int) -> None:
        super().__init__(_TITLE, every)

    def begin(self) -> list[Any]:
        """Give the batches an axis of their own, in the run that `WandbTracker` began."""
        if wandb.run is not None:
            wandb.define_metric("batch/batch_step")
            wandb.define_metric("batch/*", step_metric="batch/batch_step")
        return []

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write the values of a step."""
        if wandb.run is not None:
            named = {f"batch/{name}": value for name, value in values.items()}
            wandb.run.log(named | {"batch/batch_step": step})
