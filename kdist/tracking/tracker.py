"""`Tracker`: the base class of trackers, which may never interrupt training."""

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..callbacks.resumable import ResumableCallback
from ..errors import UserError, error_line
from ..strategies.exact_strategy import ExactStrategy
from ..strategies.hardware import device_names

if TYPE_CHECKING:
    from ..callbacks import StepMeasurement, TrainingTelemetry


class Tracker(keras.callbacks.Callback):
    """Forwards training events to callbacks that it creates when training begins.

    If a callback or the tracker itself fails, the tracker warns and closes, and training continues.
    Callbacks are created only when training begins, so that a tracker can be copied, and a fit that
    never starts leaves no files. Only training and epoch events are forwarded: if a callback
    handles batches, Keras waits for the metrics of every execution.

    A subclass writes the settings and makes the callbacks in `begin`, writes steps in `scalars`,
    and closes its files in `close`. Epochs are counted from 1, as everywhere in kdist. The values
    of each epoch have `seconds` since training began.

    A killed process may have written epochs and steps after its last checkpoint. The resumed
    training does not write them again: see `is_new`.

    Args:
        title: The tracker's name in warnings.
        telemetry: Source of the telemetry values; also a callback of the same fit.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: When training begins: the telemetry is not among the callbacks of the fit.

    Attributes:
        continues: Whether files of an earlier process of this run may exist. A state passed to
            `set_state` makes it true for the next fit.
    """

    state_is_set_before_training: ClassVar[bool] = True
    """Tells `Checkpoint` to call `set_state` before `on_train_begin`."""

    on_chief_only: ClassVar[bool] = True
    """Of several workers, the chief tracks."""

    def __init__(
        self,
        title: str,
        *,
        telemetry: "TrainingTelemetry | None" = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.title = title
        self.telemetry = telemetry
        self.continues = False
        self._of_caller = False
        self._clock = clock
        self._state: Mapping[str, Any] = {}
        self._callbacks: list[Any] = []
        self._open = False
        self._began = 0.0

    def begin(self) -> list[Any]:
        """Return the callbacks to forward events to."""
        return []

    def at_epoch_end(self, epoch: int, logs: dict[str, Any], *, is_new: bool) -> None:
        """Write values that the callbacks do not write; epochs count from 1."""

    def is_new(self, axis: str, step: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether no earlier process of the run has written a step; asked just before the write.

        Args:
            axis: `"epoch"`, `"batch"` or `"telemetry"`.
            step: The epoch, or the step over all epochs; from 1.
        """
        return True

    def scalars(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step.

        Args:
            axis: As in `is_new`.
            step: As in `is_new`.
            values: Numbers, written as scalars, and arrays, written as histograms.
        """

    def track_step(self, axis: str, step: int, values: Mapping[str, Any]) -> None:
        """Write the values of a step, unless the tracker is closed or the step is already written.

        A tracker that has failed is closed. An earlier process of the run may have written the
        step: see `is_new`.
        """
        if not self._open:
            return
        with self._guarded(f"write {axis} values"):
            if self.is_new(axis, step):
                self.scalars(axis, step, values)

    def flush(self) -> None:
        """Write all values to the disk."""

    def state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as values that JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`; called after `begin`."""

    def close(self, exit_code: int) -> None:
        """Close the files or the run that `begin` opened; `exit_code` is 0 if training finished."""

    def get_state(self) -> dict[str, Any]:
        """Flush all values to the disk, and return the state that a resumed run needs."""
        if self._open:
            with self._guarded("write"):
                self.flush()
        return {"seconds": self._clock() - self._began, **self.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next fit continue from `state`, a result of `get_state`."""
        self._state = state

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Make the callbacks and start them."""
        if self.telemetry is not None:
            self._listen(self.telemetry)
        state, self._state = self._state, {}
        self._of_caller, self.continues = self.continues, self.continues or bool(state)
        self._open = True
        self._began = self._clock() - state.get("seconds", 0.0)
        with self._guarded("start"):
            self._callbacks = self.begin()
            if state:
                self.restore(state)
            for callback in self._callbacks:
                callback.set_params(self.params)
                callback.set_model(self.model)
                callback.on_train_begin(logs)

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

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forward the event."""
        with self._guarded("begin an epoch"):
            for callback in self._callbacks:
                callback.on_epoch_begin(epoch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forward the event with a copy of `logs`, which trackers must not change."""
        values = {"seconds": self._clock() - self._began} | dict(logs or {})
        with self._guarded("write an epoch"):
            is_new = self._open and self.is_new("epoch", epoch + 1)
            for callback in self._callbacks if is_new else ():
                callback.on_epoch_end(epoch + 1, dict(values))
            if self._open:
                self.at_epoch_end(epoch + 1, dict(values), is_new=is_new)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Close the tracker."""
        self.end(0)

    def end(self, exit_code: int) -> None:
        """Close the tracker, unless it is already closed.

        Args:
            exit_code: 0 if training finished; 255 after Ctrl-C, as in W&B.
        """
        with self._guarded("end"):
            for callback in self._callbacks:
                callback.on_train_end()
            if self._open:
                self.close(exit_code)
        self._callbacks, self._open = [], False
        self.continues = self._of_caller  # The next fit may be another run.

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._callbacks = []
            if self._open:
                self._open = False
                with contextlib.suppress(Exception):
                    self.close(1)
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


# `best_epoch` is the best epoch of the first of these values that `logs` has.
_JUDGED_BY = ("val_accuracy", "val_loss", "accuracy", "loss")


class BestValues:
    """Keeps the highest accuracies and the lowest losses, epoch by epoch.

    Example:
        >>> best = BestValues()
        >>> best.update(1, {"val_accuracy": 0.8, "lr": 0.1})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
        >>> best.update(2, {"val_accuracy": 0.7})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
    """

    def __init__(self) -> None:
        self._best: dict[str, tuple[float, int]] = {}

    def state(self) -> dict[str, Any]:
        """Return the best values so far, as values that JSON can hold."""
        return {name: list(best) for name, best in self._best.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`."""
        self._best = {name: (value, epoch) for name, (value, epoch) in state.items()}

    def update(self, epoch: int, logs: Mapping[str, Any]) -> dict[str, float]:
        """Compare the values of an epoch, and return the best values so far.

        Args:
            epoch: The epoch's number, from 1.
            logs: Values of the epoch. Values with names that end in `accuracy` or `loss` are
                compared; NaN is ignored.

        Returns:
            `best_<name>` of each compared value, and `best_epoch`: the best epoch by the validation
            accuracy, or, without it, by the validation loss, the accuracy or the loss.
        """
        for name, value in logs.items():
            sign = {"accuracy": 1, "loss": -1}.get(name.rpartition("_")[2])
            if sign is None or math.isnan(value):
                continue
            if name not in self._best or sign * value > sign * self._best[name][0]:
                self._best[name] = (float(value), epoch)
        values: dict[str, float] = {f"best_{name}": best for name, (best, _) in self._best.items()}
        judge = next((name for name in _JUDGED_BY if name in self._best), None)
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
