"""`TrainResult`: what a run came to."""

import dataclasses
import importlib.metadata
import platform
import statistics
from typing import TYPE_CHECKING, Any

from .data import ImageData
from .hardware import device_names
from .run_folder import RunFolder

if TYPE_CHECKING:
    import keras

    from .strategy import MirroredStrategy

_VERSIONS = ("kdist", "tensorflow", "keras", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a run came to.

    Attributes:
        val_accuracy: Validation accuracy after the last whole epoch; `None` if there was none.
        best_val_accuracy: The best of all epochs.
        images_per_sec: Training images a second, median over the epochs after the first.
        seconds: Duration of `fit`, validation included.
        epochs: Whole epochs trained.
        reached_target: Whether training stopped because the target accuracy was reached.
        interrupted: Whether Ctrl-C ended the training.
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
    interrupted: bool
    run_dir: str
    history: dict[str, list[float]]
    model: "keras.Model"


def make_result(
    history: dict[str, list[float]],
    folder: RunFolder,
    model: "keras.Model",
    seconds: float,
    interrupted: bool,
    reached_target: bool,
) -> TrainResult:
    """What a run came to, from its history."""
    accuracies = history.get("val_accuracy", [])
    rates = history.get("images_per_sec", [])
    rates = rates[1:] or rates  # the first epoch holds the tracing of the step
    return TrainResult(
        val_accuracy=accuracies[-1] if accuracies else None,
        best_val_accuracy=max(accuracies, default=None),
        images_per_sec=statistics.median(rates) if rates else None,
        seconds=seconds,
        epochs=max(map(len, history.values()), default=0),
        reached_target=reached_target,
        interrupted=interrupted,
        run_dir=str(folder.path),
        history=history,
        model=model,
    )


def summary(
    result: TrainResult,
    strategy: "MirroredStrategy",
    global_batch: int,
    learning_rate: float,
    data: ImageData,
) -> dict[str, Any]:
    """The result and what it was reached on, as plain data."""
    names = [field.name for field in dataclasses.fields(result)]
    values = {name: getattr(result, name) for name in names if name not in ("history", "model")}
    return values | {
        "replicas": strategy.num_replicas_in_sync,
        "devices": list(strategy.devices),
        "device_names": device_names(strategy.devices),
        "global_batch": global_batch,
        "learning_rate": learning_rate,
        "parameters": result.model.count_params(),
        "data": data.source,
        "training_images": len(data.train_images),
        "validation_images": len(data.test_images),
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS}
        | {"python": platform.python_version()},
    }
