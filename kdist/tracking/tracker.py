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
from ..errors import UserError, first_message_line
from ..files import atomic_write
from ..strategies.exact_strategy import ExactStrategy
from ..strategies.hardware import device_names
from ..versions import versions

if TYPE_CHECKING:
    from ..callbacks import StepMeasurement, TrainingTelemetry


class Tracker(keras.callbacks.Callback):
    """Records the settings and the values of a fit.

    A subclass has three methods: `start`, `log_values` and `finish_run`. Epochs are counted from 1.
    If a method fails, the tracker warns and finishes its run, and training continues. No file is
    opened before training begins, so that a tracker can be copied, and a fit that never starts
    leaves no files. A tracker has no `on_train_batch_end`, because Keras would then wait for the
    metrics after every execution; `BatchTracking` has this method.

    A killed process may have written epochs and steps after its last checkpoint. `sent.json` in the
    tracker's folder has the last epoch and step, so that the resumed training does not write them
    again. The file is written before the values: a missing point does less harm than a repeated
    point.

    The arguments are those of `tracking`, but `folder` is the tracker's own, and `telemetry` has to
    be among the callbacks of the same fit.

    Attributes:
        continues_run: Whether files of an earlier process of this run may exist.
        sent: Content of `sent.json`: the last `epoch` and the last steps of the axes `batch` and
            `telemetry`, the number of `rows`, and values of a subclass. Empty for a new run.
    """

    title: ClassVar[str] = ""
    """Name of the tracker in warnings."""

    state_is_set_before_training: ClassVar[bool] = True
    """Tells `Checkpoint` to call `set_state` before `on_train_begin`."""

    on_chief_only: ClassVar[bool] = True
    """With several workers, only the chief writes values."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, Any],
        hyperparameters: Mapping[str, Any] | None = None,
        group: str | None = None,
        name: str | None = None,
        telemetry: "TrainingTelemetry | None" = None,
        verbose: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.settings = {**settings, **(hyperparameters or {})}
        self.hyperparameters = settings if hyperparameters is None else hyperparameters
        self.group = group
        self.name = name
        self.telemetry = telemetry
        self.verbose = verbose
        self.continues_run = False
        self.sent: dict[str, Any] = {}
        self._clock = clock
        self._state: Mapping[str, Any] = {}
        self._best: dict[str, float] = {}
        self._is_open = False
        self._start_time = 0.0

    def start(self, environment: Mapping[str, Any]) -> None:
        """Begin a run and record its settings, or continue the run that `sent` describes.

        `environment` has the number of `replicas`, the `device`, and `versions` of packages by
        name.
        """

    def log_values(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step: numbers as scalars, and arrays as histograms.

        The axis is `"epoch"`; `"best"` for the best values up to an epoch; `"batch"`;
        `"telemetry"`. The step is the epoch, or the step over all epochs; from 1.
        """

    def finish_run(self, exit_code: int) -> None:
        """Close the run, also if `start` failed.

        The exit code is 0 if training finished; 255 after Ctrl-C, as in W&B.
        """

    def write_sent_file(self, **values: Any) -> None:
        """Write values into `sent.json`."""
        self.sent |= values
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / "sent.json", json.dumps(self.sent))

    def log_values_once(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step, unless the tracker is closed or has written the step."""
        with self._catch_errors(f"write {axis} values"):
            if self._claim_step(axis, step):
                self.log_values(axis, step, values)

    def get_state(self) -> dict[str, Any]:
        return {"seconds": self._clock() - self._start_time, "best": self._best}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        if self.telemetry is not None:
            self._subscribe(self.telemetry)
        state, self._state = self._state, {}
        self._is_open = True
        self._start_time = self._clock() - state.get("seconds", 0.0)
        self._best = dict(state.get("best", {}))
        with self._catch_errors("start"):
            file = self.folder / "sent.json"
            is_resumed = (self.continues_run or state) and file.exists()
            self.sent = json.loads(file.read_text(encoding="utf-8")) if is_resumed else {}
            self.start(
                {
                    "replicas": self.model.distribute_strategy.num_replicas_in_sync,
                    "device": describe_device(self.model.distribute_strategy),
                    "versions": versions(),
                }
            )
            self.write_sent_file()

    def _claim_step(self, axis: str, step: int) -> bool:
        """Record a step in `sent.json`; `False` if the tracker is closed or wrote it before."""
        if not self._is_open or step <= self.sent.get(axis, 0):
            return False
        self.write_sent_file(**{axis: step, "rows": self.sent.get("rows", 0) + 1})
        return True

    def _subscribe(self, telemetry: "TrainingTelemetry") -> None:
        if telemetry.model is not self.model:
            raise UserError(
                "the TrainingTelemetry of tracking(telemetry=…) is not among the callbacks of fit,"
                " so it measures nothing: pass callbacks=[telemetry, *trackers]"
            )
        telemetry.listen(
            lambda measurement: self.log_values_once(
                "telemetry", measurement.step, _finite_values_and_norms(measurement)
            )
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        values = {"seconds": self._clock() - self._start_time} | dict(logs or {})
        with self._catch_errors("write an epoch"):
            keep_best(self._best, values)
            if self._claim_step("epoch", epoch + 1):
                values["learning_rate"] = read_learning_rate(self.model)
                self.log_values("epoch", epoch + 1, values)
                self.log_values("best", epoch + 1, dict(self._best))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        self.close(0)

    def close(self, exit_code: int) -> None:
        """Close the tracker, unless it is already closed; `exit_code` as in `finish_run`."""
        with self._catch_errors("close its run", "its last values may be missing"):
            if self._is_open:
                self.finish_run(exit_code)
        self._is_open = False

    @contextlib.contextmanager
    def _catch_errors(self, task: str, effect: str | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._is_open:
                self._is_open = False
                with contextlib.suppress(Exception):
                    self.finish_run(1)
            reason = f"{type(error).__name__}: {first_message_line(error)}"
            effect = effect or f"training continues without {self.title}"
            warnings.warn(f"{self.title} could not {task} ({reason}): {effect}", stacklevel=3)


@contextlib.contextmanager
def close_trackers(callbacks: Iterable[keras.callbacks.Callback]) -> Iterator[None]:
    """Close the trackers among `callbacks`, also after an exception.

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
                callback.close(exit_code)


class BatchTracking(ResumableCallback):
    """Tracks metrics and the learning rate every `every` steps, over all epochs of the fit.

    If an execution has several steps, the values of its last step are written.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0}
    steps: int

    on_chief_only: ClassVar[bool] = True
    """With several workers, only the chief tracks."""

    def __init__(self, every: int, trackers: Sequence[Tracker]) -> None:
        super().__init__(verbose=0)
        self.every = every
        self.trackers = trackers
        self._first_batch = 0  # the first step of the last execution, counted in the epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_begin(batch, logs)
        self._first_batch = batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        before = self.steps
        self.steps += self.steps_of_epoch_after(batch) - self._first_batch
        if self.steps // self.every > before // self.every:
            values = {**(logs or {}), "learning_rate": read_learning_rate(self.model)}
            for tracker in self.trackers:
                tracker.log_values_once("batch", self.steps, values)


def read_learning_rate(model: keras.Model) -> float:
    """Return the learning rate of the next step."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def _finite_values_and_norms(measurement: "StepMeasurement") -> dict[str, Any]:
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


def keep_best(best: dict[str, float], values: Mapping[str, Any]) -> None:
    """Keep the highest accuracies and the lowest losses of all epochs in `best`.

    Values whose names end in neither `accuracy` nor `loss` are ignored, and so is NaN.

    Examples:
        >>> best = {"best_val_accuracy": 0.7}
        >>> keep_best(best, {"val_accuracy": 0.8, "learning_rate": 0.1})
        >>> best
        {'best_val_accuracy': 0.8}
    """
    for name, value in values.items():
        choose = {"accuracy": max, "loss": min}.get(name.rpartition("_")[2])
        if choose is not None and not math.isnan(value):
            best[f"best_{name}"] = choose(float(value), best.get(f"best_{name}", float(value)))


def describe_device(strategy: Any) -> str:
    """Return the product names of a strategy's devices, each once, such as `NVIDIA H100 80GB HBM3`.

    Of a strategy that is not kdist's, only the first device is named.
    """
    devices: tuple[str, ...] = ("GPU:0",) if tf.config.list_logical_devices("GPU") else ("CPU:0",)
    if isinstance(strategy, ExactStrategy):
        devices = strategy.devices
    return ", ".join(dict.fromkeys(device_names(devices)))
