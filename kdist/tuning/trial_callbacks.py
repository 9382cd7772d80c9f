"""Callbacks of a trial: fail on NaN, log seconds to target, and save the state for resuming."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import keras_tuner

from ..atomic_files import atomic_path, atomic_write
from ..callbacks.resumable import ResumableCallback
from ..callbacks.stop_at_accuracy import StopAtAccuracy


class FailOnNaN(keras.callbacks.Callback):
    """Fails the trial when the loss of an epoch is NaN or infinite."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Check the losses."""
        for name in ("loss", "val_loss"):
            value = (logs or {}).get(name)
            if value is not None and not math.isfinite(value):
                raise keras_tuner.errors.FailedTrialError(
                    f"{name} was {value:g} after epoch {epoch + 1}"
                )


class LogSecondsToTarget(keras.callbacks.Callback):
    """Adds the seconds to the target to `logs` once it is reached.

    Args:
        stop: The callback that measures them; it has to come earlier in the list.
    """

    def __init__(self, stop: StopAtAccuracy) -> None:
        super().__init__()
        self.stop = stop

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Add the seconds if the target is reached."""
        if self.stop.reached and logs is not None:
            logs["seconds_to_target"] = self.stop.met_seconds


class KeepState(keras.callbacks.Callback):
    """Saves weights, optimizer and callbacks after every epoch, for Hyperband's next round.

    KerasTuner saves only the weights of the best epoch, so a promoted trial would start with a new
    optimizer and repeat the warm-up of its learning rate.

    Args:
        folder: The folder for the two files.
        callbacks: The callbacks whose state is saved, by name.
    """

    def __init__(self, folder: Path, callbacks: Mapping[str, ResumableCallback]) -> None:
        super().__init__()
        self.folder = folder
        self.callbacks = callbacks

    def on_epoch_end(self, *_: Any) -> None:
        """Write the files."""
        with atomic_path(weights_file(self.folder)) as part:
            self.model.save_weights(part)  # the optimizer's variables too
        states = {name: callback.get_state() for name, callback in self.callbacks.items()}
        atomic_write(self.folder / "state.json", json.dumps(states))


def weights_file(folder: Path) -> Path:
    """Return the path where `KeepState` saves the weights."""
    return folder / "state.weights.h5"


def resume_callbacks(folder: Path, callbacks: Mapping[str, ResumableCallback]) -> None:
    """Restore the states of callbacks that `KeepState` saved in `folder`."""
    states = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    for name, callback in callbacks.items():
        callback.set_state(states[name])
