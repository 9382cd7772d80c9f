"""Progress of a run: a line for each epoch, where Keras's bar is not shown."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from rich.console import Console

from ..callbacks import PrintTotalTime


class EpochLines(keras.callbacks.ProgbarLogger):
    """Prints one line per epoch, in place of Keras's progress bar.

    Args:
        total_time: The callback that counts the seconds, earlier in the list of callbacks.
    """

    def __init__(self, total_time: PrintTotalTime) -> None:
        super().__init__()
        self.total_time = total_time

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore nothing."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Do nothing; replaces Keras's line at the start of an epoch, and Keras's bar."""

    on_train_batch_end = on_epoch_begin

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        values = describe_epoch(logs or {}, self.total_time.seconds)
        print(f"Epoch {epoch + 1}/{self.epochs}: {values}", flush=True)


def describe_epoch(logs: Mapping[str, Any], seconds: float) -> str:
    """Format the values of an epoch in one line.

    Examples:
        >>> describe_epoch({"val_accuracy": 0.85214, "images_per_sec": 1184.7}, 9.48)
        'val_accuracy 0.8521, 1,185 images/s, 9.5 seconds so far'
    """
    rate = logs.get("images_per_sec", math.nan)
    parts = [
        f"{name} {_format_number(value)}"
        for name, value in logs.items()
        if name != "images_per_sec"
    ]
    if math.isfinite(rate):
        parts.append(f"{rate:,.0f} images/s")
    return ", ".join([*parts, f"{seconds:,.1f} seconds so far"])


def _format_number(value: Any) -> str:
    number = float(value)
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4f}" if abs(number) > 1e-3 or not number else f"{number:.3e}"


def make_progress(
    verbose: int, total_time: PrintTotalTime, *, console: Console | None = None
) -> list[keras.callbacks.Callback]:
    """Make the callback that prints a run's epochs; none if Keras's bar or nothing is shown.

    See `train` for `verbose`.
    """
    console = console or Console()
    redraws = (console.is_terminal and not console.is_dumb_terminal) or console.is_jupyter
    if verbose == 0 or (verbose == 1 and redraws):
        return []
    return [EpochLines(total_time)]
