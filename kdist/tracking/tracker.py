"""`Tracker`: the base class of trackers, which may never interrupt training."""

import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..callbacks.resumable import ResumableCallback
from ..errors import UserError, error_line
from ..files import atomic_write
from ..strategies.exact_strategy import ExactStrategy
from ..strategies.hardware import device_names
from ..versions import versions

if TYPE_CHECKING:
    from ..callbacks import StepMeasurement, TrainingTelemetry


class Tracker(keras.callbacks.Callback):
    """Records the settings and the values of a fit.

    A subclass has three methods: `config`, `scalars` and `finish`. Epochs are counted from 1, as
    everywhere in kdist. If a method fails, the tracker warns and finishes, and training continues.
    No file is opened before training begins, so that a tracker can be copied, and a fit that never
    starts leaves no files. A tracker handles no batches, as Keras would wait for the metrics of
    every execution.

    A killed process may have written epochs and steps after its last checkpoint. The file
    `sent.json` in the tracker's folder has the last of each, so that the resumed training does not
    write them again. The file is written before the values: a value that is written twice is drawn
    twice, whereas a value that a killed process did not write is a single missing point.

    Args:
        folder: Folder of the tracker's files.
        settings: Settings of the run.
        hyperparameters: Hyperparameters of a trial of a search; `settings` if the run is no trial.
        group: Group of the run.
        name: Name of the run.
        objective: Name of a value in `logs`, and `"max"` or `"min"`: see `BestValues`.
        telemetry: Source of the telemetry values; also a callback of the same fit.
        verbose: 0 does not print where the run is.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: When training begins: the telemetry is not among the callbacks of the fit.

    Attributes:
        continues: Whether files of an earlier process of this run may exist.
        sent: Content of `sent.json`: the last `epoch` and the last steps of the axes `batch` and
            `telemetry`, the number of `rows`, and what a subclass notes. Empty for a new run.
    """

    title: ClassVar[str] = ""
    """Name of the tracker in warnings."""

    state_is_set_before_training: ClassVar[bool] = True
    """Tells `Checkpoint` to call `set_state` before `on_train_begin`."""

    on_chief_only: ClassVar[bool] = True
    """Of several workers, the chief tracks."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, Any],
        hyperparameters: Mapping[str, Any] | None = None,
        group: str | None = None,
        name: str | None = None,
        objective: tuple[str, str] | None = None,
        telemetry: "TrainingTelemetry | None" = None,
        verbose: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.settings = {**settings, **(hyperparameters or {})}
        self.hyperparameters = settings if hyperparameters is None else hyperparameters
        self.job_type = "train" if hyperparameters is None else "trial"
        self.group = group
        self.name = name
        self.objective = objective
        self.telemetry = telemetry
        self.verbose = verbose
        self.continues = False
        self.sent: dict[str, Any] = {}
        self._clock = clock
        self._state: Mapping[str, Any] = {}
        self._best = BestValues(objective)
        self._is_open = False
        self._began = 0.0

    def config(self, made_on: Mapping[str, Any]) -> None:
        """Begin a run and record its settings, or continue the run that `sent` describes.

        Args:
            made_on: The number of `replicas`, the `device`, and the `versions` of packages by name.
        """

    def scalars(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step.

        Args:
            axis: `"epoch"`; `"best"` for the best values up to an epoch; `"batch"`; `"telemetry"`.
            step: The epoch, or the step over all epochs; from 1.
            values: Numbers, written as scalars, and arrays, written as histograms.
        """

    def finish(self, exit_code: int) -> None:
        """Close the run, also if `config` failed.

        Args:
            exit_code: 0 if training finished; 255 after Ctrl-C, as in W&B.
        """

    def note(self, **values: Any) -> None:
        """Write values into `sent.json`."""
        self.sent |= values
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / "sent.json", json.dumps(self.sent))

    def track_step(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step, unless the tracker is closed or has written the step."""
        with self._guarded(f"write {axis} values"):
            if self._is_new(axis, step):
                self.scalars(axis, step, values)

    def get_state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        return {"seconds": self._clock() - self._began, "best": self._best.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next fit continue from `state`, a result of `get_state`."""
        self._state = state

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Begin or continue the run."""
        if self.telemetry is not None:
            self._listen(self.telemetry)
        state, self._state = self._state, {}
        self._is_open = True
        self._began = self._clock() - state.get("seconds", 0.0)
        self._best = BestValues(self.objective, state.get("best", {}))
        with self._guarded("start"):
            self.sent = self._read_sent() if self.continues or state else {}
            self.config(
                {
                    "replicas": self.model.distribute_strategy.num_replicas_in_sync,
                    "device": device_of(self.model.distribute_strategy),
                    "versions": versions(),
                }
            )
            self.note()

    def _read_sent(self) -> dict[str, Any]:
        path = self.folder / "sent.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def _is_new(self, axis: str, step: int) -> bool:
        """Whether the tracker is open and the step was not written yet; if so, note it."""
        if not self._is_open or step <= self.sent.get(axis, 0):
            return False
        self.note(**{axis: step, "rows": self.sent.get("rows", 0) + 1})
        return True

    def _listen(self, telemetry: "TrainingTelemetry") -> None:
        if telemetry.model is not self.model:
            raise UserError(
                "the TrainingTelemetry of tracking(telemetry=…) is not among the callbacks of fit,"
                " so it measures nothing: pass callbacks=[telemetry, *trackers]"
            )
        telemetry.listen(
            lambda measurement: self.track_step(
                "telemetry", measurement.step, _norms_and_values(measurement)
            )
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the values of the epoch, the learning rate, the seconds, and the best values."""
        values = {"seconds": self._clock() - self._began} | dict(logs or {})
        with self._guarded("write an epoch"):
            best = self._best.update(epoch + 1, values)
            if self._is_new("epoch", epoch + 1):
                values["learning_rate"] = learning_rate(self.model)
                self.scalars("epoch", epoch + 1, values)
                self.scalars("best", epoch + 1, best)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Close the tracker."""
        self.end(0)

    def end(self, exit_code: int) -> None:
        """Close the tracker, unless it is already closed; `exit_code` as in `finish`."""
        with self._guarded("end"):
            if self._is_open:
                self.finish(exit_code)
        self._is_open = False

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._is_open:
                self._is_open = False
                with contextlib.suppress(Exception):
                    self.finish(1)
            warnings.warn(
                f"{self.title} could not {doing} ({type(error).__name__}: {error_line(error)}):"
                " training continues without it",
                stacklevel=3,
            )


@contextlib.contextmanager
def ended(callbacks: Iterable[keras.callbacks.Callback]) -> Iterator[None]:
    """End the trackers among `callbacks`, also after an exception.

    Keras ends callbacks only if the fit finishes.
    """
    exit_code = 0
    try:
        yield
    except BaseException as error:
        exit_code = 255 if isinstance(error, KeyboardInterrupt) else 1
        raise
    finally:
        for callback in callbacks:
            if isinstance(callback, Tracker):
                callback.end(exit_code)


class BatchTracking(ResumableCallback):
    """Tracks metrics and the learning rate every `every` steps, over all epochs of the fit.

    If an execution has several steps, the values of its last step are written.

    Args:
        every: Steps between two writes.
        trackers: The trackers that write the values.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0}
    steps: int

    on_chief_only: ClassVar[bool] = True
    """Of several workers, the chief tracks."""

    def __init__(self, every: int, trackers: Sequence[Tracker]) -> None:
        super().__init__(verbose=0)
        self.every = every
        self.trackers = trackers
        self._first = 0  # number of the execution's first step in its epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the first step of the execution."""
        super().on_train_batch_begin(batch, logs)
        self._first = batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the metrics, if they are due."""
        super().on_train_batch_end(batch, logs)
        before, self.steps = self.steps, self.steps + self.steps_done(batch) - self._first
        if self.steps // self.every > before // self.every:
            values = {**(logs or {}), "learning_rate": learning_rate(self.model)}
            for tracker in self.trackers:
                tracker.track_step("batch", self.steps, values)


def learning_rate(model: keras.Model) -> float:
    """Return the learning rate of the next step."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def _norms_and_values(measurement: "StepMeasurement") -> dict[str, Any]:
    """Return finite weights and gradients, by names such as `gradients/conv1/kernel`, and norms.

    The name of a norm is `gradients/conv1/kernel/norm`; values that are not finite do not count.
    """
    values: dict[str, Any] = {}
    parts = {"weights": measurement.weights, "gradients": measurement.gradients}
    for part, arrays in parts.items():
        for name, array in arrays.items():
            wide = array.astype("float64")
            finite = wide[np.isfinite(wide)]
            values[f"{part}/{name}"] = finite
            values[f"{part}/{name}/norm"] = float(np.linalg.norm(finite))
    return values


# Without an objective, `best_epoch` is the best epoch of the first of these that `logs` has.
_JUDGED_BY = ("val_accuracy", "val_loss", "accuracy", "loss")


class BestValues:
    """Keeps the highest accuracies, the lowest losses, and the best objective, epoch by epoch.

    Args:
        objective: Name of a value, and `"max"` or `"min"`.
        state: A result of `state` to continue from.

    Example:
        >>> best = BestValues()
        >>> best.update(1, {"val_accuracy": 0.8, "lr": 0.1})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
        >>> best.update(2, {"val_accuracy": 0.7})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
    """

    def __init__(
        self, objective: tuple[str, str] | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        self.objective = objective
        self._best = {name: (value, epoch) for name, (value, epoch) in (state or {}).items()}

    def state(self) -> dict[str, Any]:
        """Return the best values so far, as values that JSON can hold."""
        return {name: list(best) for name, best in self._best.items()}

    def update(self, epoch: int, logs: Mapping[str, Any]) -> dict[str, float]:
        """Compare the values of an epoch, and return the best values so far.

        Args:
            epoch: The epoch's number, from 1.
            logs: Values of the epoch. The objective, and values with names that end in `accuracy`
                or `loss`, are compared; NaN is ignored.

        Returns:
            `best_<name>` of each accuracy and loss; `objective`; and `best_epoch`: the best epoch
            by the objective, or, without an objective, by the validation accuracy, the validation
            loss, the accuracy or the loss.
        """
        signs = {"accuracy": 1, "loss": -1}
        kinds = {name: name.rpartition("_")[2] for name in logs}
        compared = {f"best_{n}": (n, signs[kind]) for n, kind in kinds.items() if kind in signs}
        judges = [f"best_{name}" for name in _JUDGED_BY]
        if self.objective is not None:
            name, direction = self.objective
            compared["objective"] = (name, 1 if direction == "max" else -1)
            judges = ["objective"]
        for key, (name, sign) in compared.items():
            value = float(logs.get(name, math.nan))
            best, _ = self._best.get(key, (-sign * math.inf, 0))
            if sign * value > sign * best:
                self._best[key] = (value, epoch)
        values: dict[str, float] = {key: value for key, (value, _) in self._best.items()}
        judge = next((name for name in judges if name in self._best), None)
        return values if judge is None else values | {"best_epoch": self._best[judge][1]}


def device_of(strategy: Any) -> str:
    """Return the product names of a strategy's devices, each once, such as `NVIDIA H100 80GB HBM3`.

    Args:
        strategy: A `tf.distribute.Strategy`. If it is not kdist's, the first device is named.
    """
    devices: tuple[str, ...] = ("GPU:0",) if tf.config.list_logical_devices("GPU") else ("CPU:0",)
    if isinstance(strategy, ExactStrategy):
        devices = strategy.devices
    return ", ".join(dict.fromkeys(device_names(devices)))
