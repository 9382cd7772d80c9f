"""`TrainResult`: the result of a run."""

import dataclasses
from signal import Signals
from typing import TYPE_CHECKING, Any

from ..strategies.hardware import device_names
from ..versions import versions
from .folder import RunFolder
from .record import median_rate

if TYPE_CHECKING:
    import keras

    from ..callbacks.stop_at_non_finite import NonFinite
    from ..strategies.exact_strategy import ExactStrategy
    from .model import RunParts
    from .run_callbacks import RunCallbacks


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a run.

    Attributes:
        val_accuracy: Validation accuracy after the last complete epoch; `None` without validation.
        best_val_accuracy: Best validation accuracy of all epochs; `None` without validation.
        images_per_sec: Training images per second, median over the epochs after the first.
        seconds: Duration of `fit`, validation included.
        epochs: Complete epochs trained.
        reached_target: Whether training stopped because the target accuracy was reached.
        met_epoch: First epoch of the sequence above the target, as `StopAtAccuracy` counts it;
            `None` if the target was not reached.
        met_seconds: Seconds of training until the end of `met_epoch`, or `None`.
        interrupted: Whether Ctrl-C, SIGTERM or SIGHUP ended the training.
        signal: The signal that arrived during or after training; `None` without a signal.
        diverged: Epoch and step of the NaN or infinite loss that ended the training; `None` if the
            loss was finite.
        run_dir: The run folder.
        history: The values of each epoch, by name.
        model: The trained model.
    """

    val_accuracy: float | None
    best_val_accuracy: float | None
    images_per_sec: float | None
    seconds: float
    epochs: int
    reached_target: bool
    met_epoch: int | None
    met_seconds: float | None
    interrupted: bool
    signal: Signals | None
    diverged: "NonFinite | None"
    run_dir: str
    history: dict[str, list[float]]
    model: "keras.Model"


def make_result(
    made: "RunCallbacks",
    folder: RunFolder,
    model: "keras.Model",
    seconds: float,
    interrupted: bool,
    received: Signals | None,
) -> TrainResult:
    """Make the result of a run from the records of its callbacks."""
    history: dict[str, list[float]] = made.history.history
    accuracies = history.get("val_accuracy", [])
    return TrainResult(
        val_accuracy=accuracies[-1] if accuracies else None,
        best_val_accuracy=max(accuracies, default=None),
        images_per_sec=median_rate(history.get("images_per_sec", [])),
        seconds=seconds,
        epochs=max(map(len, history.values()), default=0),
        reached_target=made.stop.reached,
        met_epoch=made.stop.met_epoch if made.stop.reached else None,
        met_seconds=made.stop.met_seconds if made.stop.reached else None,
        interrupted=interrupted,
        signal=received,
        diverged=made.finite.found,
        run_dir=str(folder.path),
        history=history,
        model=model,
    )


def summary(
    result: TrainResult,
    strategy: "ExactStrategy",
    parts: "RunParts",
) -> dict[str, Any]:
    """Return the result, hardware and versions as plain data for `summary.json`."""
    names = [field.name for field in dataclasses.fields(result)]
    values = {name: getattr(result, name) for name in names if name not in ("history", "model")}
    found = result.diverged
    return values | {
        "signal": None if result.signal is None else result.signal.name,
        "diverged": None if found is None else {"epoch": found.epoch, "step": found.step},
        "replicas": parts.plan.replicas,
        "workers": strategy.workers,
        "devices": list(strategy.devices),
        "device_names": device_names(strategy.devices),
        "global_batch": parts.plan.global_batch,
        "learning_rate": parts.plan.learning_rate,
        "parameters": result.model.count_params(),
        "data": parts.source,
        "training_images": parts.training_images,
        "validation_images": parts.validation_images,
        "versions": versions(),
    }
