"""Histograms and norms of `TrainingTelemetry` in TensorBoard and W&B, step by step."""

import abc
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram import metadata

from ..analysis.histogram import Histogram
from ..errors import UserError
from .event_file_trackers import SeparateRun
from .tracker import Tracker
from .wandb_record import WandbRecord

if TYPE_CHECKING:
    from ..callbacks import StepMeasurement, TrainingTelemetry


class TelemetryTracker(Tracker, abc.ABC):
    """Base class of trackers that write every measurement of a `TrainingTelemetry`.

    Args:
        title: The tracker's name in warnings.
        telemetry: Measures; one of the callbacks of the same fit.

    Raises:
        UserError: When training begins: it is not.
    """

    def __init__(self, title: str, telemetry: "TrainingTelemetry") -> None:
        super().__init__(title)
        self.telemetry = telemetry

    @abc.abstractmethod
    def is_new_step(self, step: int) -> bool:
        """Whether a step is still to be written; it is about to be."""

    @abc.abstractmethod
    def write(
        self, step: int, numbers: Mapping[str, float], histograms: Mapping[str, Histogram]
    ) -> None:
        """Write what a step had, by names such as `weights/conv1/kernel`."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin to listen; reject a telemetry that measures nothing here."""
        if self.telemetry.model is not self.model:
            raise UserError(
                "the TrainingTelemetry of tracking(telemetry=…) is not among the callbacks of fit,"
                " so it measures nothing: pass callbacks=[telemetry, *trackers]"
            )
        super().on_train_begin(logs)
        self.telemetry.listen(self._measured)

    def _measured(self, measurement: "StepMeasurement") -> None:
        if not self._open:
            return
        with self._guarded("write telemetry"):
            if self.is_new_step(measurement.step):
                histograms = dict(_histograms(measurement))
                self.write(measurement.step, dict(_numbers(measurement)), histograms)


class TensorBoardTelemetry(SeparateRun, TelemetryTracker):
    """Writes histograms and norms into TensorBoard's run `telemetry`.

    Args:
        telemetry: As in `TelemetryTracker`.
        folder: TensorBoard's folder.
    """

    run = "telemetry"

    def __init__(self, telemetry: "TrainingTelemetry", folder: Path) -> None:
        super().__init__("TensorBoard", telemetry)
        self.folder = folder

    def write(
        self, step: int, numbers: Mapping[str, float], histograms: Mapping[str, Histogram]
    ) -> None:
        """Write a step; the histograms' buckets are those of the measurement, not TensorBoard's."""
        with self._writer.as_default(step):
            for name, value in numbers.items():
                tf.summary.scalar(name, value)
            for name, histogram in histograms.items():
                counts, edges = histogram.condensed()
                buckets = np.stack([edges[:-1], edges[1:], counts], 1) if len(counts) else _EMPTY
                kind = metadata.create_summary_metadata(display_name=None, description=None)
                tf.summary.write(name, buckets, metadata=kind)


class WandbTelemetry(TelemetryTracker):
    """Tracks `telemetry/<name>` over `telemetry/step` in the run that `WandbTracker` started.

    Args:
        telemetry: As in `TelemetryTracker`.
        record: What was sent; that of `WandbTracker`.
    """

    def __init__(self, telemetry: "TrainingTelemetry", record: WandbRecord) -> None:
        super().__init__("W&B", telemetry)
        self.record = record

    def begin(self) -> list[Any]:
        """Give the measurements their own axis."""
        import wandb

        if wandb.run is not None:
            wandb.define_metric("telemetry/step")
            wandb.define_metric("telemetry/*", step_metric="telemetry/step")
        return []

    def is_new_step(self, step: int) -> bool:
        """Whether the step was not sent yet."""
        return self.record.is_new("telemetry", step)

    def write(
        self, step: int, numbers: Mapping[str, float], histograms: Mapping[str, Histogram]
    ) -> None:
        """Write a step, unless the run has ended."""
        import wandb

        if wandb.run is None:
            return
        values: dict[str, Any] = dict(numbers)
        for name, histogram in histograms.items():
            counts, edges = histogram.condensed()
            if len(counts):
                values[name] = wandb.Histogram(np_histogram=(counts, edges))
        named = {f"telemetry/{name}": value for name, value in values.items()}
        wandb.run.log(named | {"telemetry/step": step})


_EMPTY = np.zeros((0, 3))


def _numbers(measurement: "StepMeasurement") -> Iterator[tuple[str, float]]:
    for name, norms in measurement.layers.items():
        yield f"weight_norm/{name}", norms.weight_norm
        yield f"gradient_norm/{name}", norms.gradient_norm
        if not math.isnan(norms.update_ratio):
            yield f"update_ratio/{name}", norms.update_ratio
    for name, histogram in measurement.outputs.items():
        yield f"zero_fraction/{name}", histogram.zero_fraction


def _histograms(measurement: "StepMeasurement") -> Iterator[tuple[str, Histogram]]:
    parts = {
        "weights": measurement.weights,
        "gradients": measurement.gradients,
        "outputs": measurement.outputs,
    }
    for part, histograms in parts.items():
        for name, histogram in histograms.items():
            yield f"{part}/{name}", histogram
