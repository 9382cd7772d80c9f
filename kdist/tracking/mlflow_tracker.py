"""MLflow: parameters, and metrics by epoch and by step."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from .tracker import Tracker

EXPERIMENT = "kdist"
_PREFIXES = {"epoch": "", "best": "", "batch": "batch/", "telemetry": "telemetry/"}


class MlflowTracker(Tracker):
    """Tracks a run with MLflow, at `MLFLOW_TRACKING_URI`, in the experiment `kdist`.

    The metrics of an epoch have the names of `logs`, over the epochs from 1; further metrics are
    the best values so far (`best_val_accuracy`, …), `batch/<name>` and the norms `telemetry/<name>`
    over the steps. Settings are parameters; the device, the versions and the group are tags.
    """

    title: ClassVar[str] = "MLflow"

    def config(self, environment: Mapping[str, Any]) -> None:
        """Begin a run with its parameters, or continue the run in `sent.json`."""
        self._run_id: str | None = None
        self._client = MlflowClient()
        if "id" in self.sent:
            self._client.update_run(self.sent["id"], status="RUNNING")
            self._run_id = self.sent["id"]
            return
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        tags = {"device": environment["device"], **environment["versions"]}
        self._run_id = self._client.create_run(
            experiment.experiment_id if experiment else self._client.create_experiment(EXPERIMENT),
            run_name=self.name,
            tags=tags | ({} if self.group is None else {"group": self.group}),
        ).info.run_id
        self.record_sent(id=self._run_id)
        settings = {
            "replicas": environment["replicas"],
            **self.settings,
            **(self.hyperparameters or {}),
        }
        parameters = [Param(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(self._run_id, params=parameters)

    def scalars(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Send the numbers of a step; MLflow has no histograms."""
        now = int(1000 * time.time())
        metrics = [
            Metric(f"{_PREFIXES[axis]}{name}", float(value), now, step)
            for name, value in values.items()
            if not isinstance(value, np.ndarray)
        ]
        self._client.log_batch(self._run_id, metrics=metrics)

    def finish(self, exit_code: int) -> None:
        """End the run: finished, killed by a signal, or failed."""
        if self._run_id is not None:
            status = {0: "FINISHED", 255: "KILLED"}.get(exit_code, "FAILED")
            self._client.set_terminated(self._run_id, status)
            if self.verbose:
                print(f"MLflow run: {self._run_id} in {self._client.tracking_uri}", flush=True)
