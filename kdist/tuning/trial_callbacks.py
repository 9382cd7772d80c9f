"""Callbacks of a trial: it fails on NaN, and keeps what a promoted trial goes on from."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import keras_tuner

from ..callbacks.early_stopping import StopAtAccuracy
from ..callbacks.resumable import ResumableCallback
from ..whole_files import write_whole


class FailOnNaN(keras.callbacks.Callback):
    """Ends the trial as failed once the loss of an epoch is no finite number."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Look at the losses."""
        for name in ("loss", "val_loss"):
            value = (logs or {}).get(name)
            if value is not None and not math.isfinite(value):
                raise keras_tuner.errors.FailedTrialError(
                    f"{name} was {value:g} after epoch {epoch + 1}"
                )


class LogSecondsToTarget(keras.callbacks.Callback):
    """Puts the seconds to the target into `logs`, once it is reached.

    Args:
        stop: Comes before it.
    """

    def __init__(self, stop: StopAtAccuracy) -> None:
        super().__init__()
        self.stop = stop

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Look whether it is."""
        if self.stop.reached and logs is not None:
            logs["seconds_to_target"] = self.stop.met_seconds


class KeepState(keras.callbacks.Callback):
    """Keeps weights, optimizer and callbacks after every epoch, for Hyperband's next round.

    KerasTuner keeps the weights of the best epoch alone, so that a promoted trial would begin
    with a fresh optimizer, and its learning rate with another warm-up.

    Args:
        folder: Where the two files are written.
        callbacks: Those whose state is kept, by name.
    """

    def __init__(self, folder: Path, callbacks: Mapping[str, ResumableCallback]) -> None:
        super().__init__()
        self.folder = folder
        self.callbacks = callbacks

    def on_epoch_end(self, *_: Any) -> None:
        """Write the files."""
        part = self.folder / ".state.weights.h5"
        self.model.save_weights(part)  # the optimizer's variables too
        part.replace(weights_file(self.folder))
        states = {name: callback.get_state() for name, callback in self.callbacks.items()}
        write_whole(self.folder / "state.json", json.dumps(states))


def weights_file(folder: Path) -> Path:
    """Where `KeepState` keeps the weights."""
    return folder / "state.weights.h5"


def resume_callbacks(folder: Path, callbacks: Mapping[str, ResumableCallback]) -> None:
    """Give callbacks the states that `KeepState` kept in `folder`."""
    states = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    for name, callback in callbacks.items():
        callback.set_state(states[name])
