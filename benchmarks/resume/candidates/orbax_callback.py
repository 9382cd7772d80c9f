"""`keras.callbacks.OrbaxCheckpoint`."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .base import ARRAYS, Candidate, Values, keras_model, set_weights
from .orbax_manager import OrbaxValues


def _callback(folder: Path, model: Any, **options: Any) -> Any:
    import keras

    callback = keras.callbacks.OrbaxCheckpoint(str(folder), max_to_keep=3, **options)
    callback.set_model(model)
    return callback


class OrbaxCallbackValues(Values):
    """Weights of a model, restored by orbax."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model = keras_model()
        self._callback = _callback(folder, self._model)

    def save(self, number: int) -> None:
        """Save as at the end of an epoch, and wait for orbax's thread."""
        set_weights(self._model, number)
        self._callback.on_epoch_end(number)
        self._callback.wait_until_finished()

    def restore(self) -> dict[str, np.ndarray] | None:
        """Restore the latest step; the callback itself does not."""
        latest = self._callback.checkpointer.latest
        if latest is None:
            return None
        state = self._callback.checkpointer.load_checkpointables(latest.step)["pytree"]
        weights = state["trainable_variables"]
        return {name: np.asarray(weights[name]["kernel"]) for name in ARRAYS}

    def strays(self) -> list[str]:
        """All besides the steps that the checkpointer knows."""
        steps = {str(one.step) for one in self._callback.checkpointer.checkpoints}
        return sorted(path.name for path in self._folder.iterdir() if path.name not in steps)

    newest = OrbaxValues.newest


class OrbaxCallback(Candidate):
    """Keras's callback over orbax."""

    title = "OrbaxCheckpoint"
    module = "orbax.checkpoint"
    values = OrbaxCallbackValues

    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:  # noqa: ARG002
        """Save at the end of an epoch; resuming is left to the user."""
        import keras

        return keras.callbacks.OrbaxCheckpoint(str(folder), max_to_keep=3), 0

    def saves(self, folder: Path, model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """Save as at the end of an epoch."""
        callback = _callback(folder, model)
        numbers = itertools.count()
        return lambda: callback.on_epoch_end(next(numbers)), callback.wait_until_finished
