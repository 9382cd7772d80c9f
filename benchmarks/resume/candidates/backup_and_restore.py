"""`keras.callbacks.BackupAndRestore`, with `double_checkpoint`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Candidate,
    Values,
    WrongValuesError,
    keras_model,
    number_of,
    set_weights,
    weights_of,
)


def backup(folder: Path, **options: Any) -> Any:
    """The callback, which keeps its files."""
    import keras

    return keras.callbacks.BackupAndRestore(
        str(folder), double_checkpoint=True, delete_checkpoint=False, **options
    )


class BackupValues(Values):
    """Weights of a model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model = keras_model()
        self._callback = backup(folder)
        self._callback.set_model(self._model)

    def save(self, number: int) -> None:
        """Save as at the end of an epoch."""
        set_weights(self._model, number)
        self._callback.on_epoch_end(number)

    def restore(self) -> dict[str, np.ndarray] | None:
        """Restore as at the beginning of training."""
        there = any(self._folder.glob("*")) if self._folder.exists() else False
        self._model._initial_epoch = None
        self._callback.on_train_begin()
        if not there:
            return None
        weights = weights_of(self._model)
        if self._model._initial_epoch != number_of(weights) + 1:
            raise WrongValuesError("the epoch of other weights")
        return weights

    def strays(self) -> list[str]:
        """None: there are four names."""
        return []

    @staticmethod
    def newest(folder: Path) -> list[Path]:
        """Weights and the epoch's number."""
        return [folder / "latest.weights.h5", folder / "training_metadata.json"]


class BackupAndRestore(Candidate):
    """Keras's own."""

    title = "BackupAndRestore"
    values = BackupValues

    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:  # noqa: ARG002
        """Save at the end of an epoch, as by default: a save amid one repeats it."""
        return backup(folder), 0

    def saves(self, folder: Path, model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """Save after a step."""
        callback = backup(folder)
        callback.set_model(model)
        return lambda: callback.on_epoch_end(0), lambda: None
