"""Progress of a run: a line for each epoch, or Keras's bar."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from rich.console import Console

from ..callbacks import PrintTotalTime


class _Progress(keras.callbacks.ProgbarLogger):
    """Base class of progress displays, which have no state to resume.

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


class EpochLines(_Progress):
    """Prints one line per epoch, in place of Keras's progress bar."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Do nothing; replaces Keras's line at the start of an epoch, and Keras's bar."""

    on_train_batch_end = on_epoch_begin

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        values = describe_epoch(logs or {}, self.total_time.seconds)
        print(f"Epoch {epoch + 1}/{self.epochs}: {values}", flush=True)


class ShortBar(_Progress):
    """Keras's progress bar with two metrics, and a line with the other metrics of the epoch.

    If the bar were wider than the terminal, Keras would print it in a new line at every step.
    """

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, _first_two_metrics(logs))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        shown = _first_two_metrics(logs)
        super().on_epoch_end(epoch, shown)
        rest = {name: value for name, value in (logs or {}).items() if name not in shown}
        print(describe_epoch(rest, self.total_time.seconds), flush=True)


def _first_two_metrics(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(list((logs or {}).items())[:2])


def describe_epoch(logs: Mapping[str, Any], seconds: float) -> str:
    """Format the values of an epoch in one line.

    Example:
        >>> describe_epoch({"val_accuracy": 0.85214, "images_per_sec": 1184.7}, 9.48)
        'val_accuracy 0.8521, 1,185 images/s, 9.5 seconds so far'
    """
    rate = logs.get("images_per_sec", math.nan)
    parts = [f"{name} {_format_number(v)}" for name, v in logs.items() if name != "images_per_sec"]
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
    """Make the callback that shows the progress of a run, if any; see `train` for `verbose`."""
    console = console or Console()
    if not verbose:
        return []
    redraws = (console.is_terminal and not console.is_dumb_terminal) or console.is_jupyter
    return [ShortBar(total_time) if verbose == 1 and redraws else EpochLines(total_time)]
