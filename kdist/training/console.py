"""What a run prints: its settings, its progress and its result."""

import io
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..performance.hardware import device_names
from ..runs.run_folder import RunFolder
from ..runs.text import count
from .config import TrainConfig, TrainPlan
from .settings import SIZES, model_name

if TYPE_CHECKING:
    from .result import TrainResult
from collections.abc import Mapping

import keras

from ..callbacks import PrintTotalTime

# The rows above the settings that differ from their defaults.
_SHOWN = {
    *("replicas", "batch_size", "base_lr", "lr_rule", "epochs", "run_dir", "network", "model"),
    *SIZES,
}
# A file has no width of its own: lines are not broken.
_WIDE = 1000


def settings_lines(
    config: TrainConfig, plan: TrainPlan, devices: tuple[str, ...], folder: RunFolder
) -> list[str]:
    """Format what is about to be trained as a table: the plan, then settings that were changed.

    Args:
        config: The settings.
        plan: Batch and learning rate.
        devices: Names of the strategy's devices.
        folder: The run folder.
    """
    hardware = ", ".join(dict.fromkeys(device_names(devices)))
    rows = {
        "devices": f"{', '.join(devices)} ({hardware})",
        "replicas": f"{plan.replicas}",
        "model": model_name(config.to_dict()),
        "global batch": f"{plan.global_batch} ({_per_replica(plan)} per replica)",
        "learning rate": f"{plan.learning_rate:g} ({_base_rate(config)}rule {config.lr_rule})",
        "epochs": f"{config.epochs} at most",
        "run folder": f"{folder.path}",
    }
    if config.model is not None:
        rows["model"] = f"{model_name(config.to_dict())} ({config.model.rpartition(':')[0]})"
    default = TrainConfig().to_dict()
    changed = {
        name: f"{_setting(value)} (default {_setting(default[name])})"
        for name, value in config.to_dict().items()
        if name not in _SHOWN and value != default[name]
    }
    return _two_columns([*rows.items(), *changed.items()])


def result_lines(result: "TrainResult") -> list[str]:
    """Format a result as a table: what was reached, how fast, and where its files are."""
    folder = Path(result.run_dir)
    files = [folder / name for name in ("model.keras", "model.weights.h5")]
    model = next((f"{file}" for file in files if file.exists()), "not saved")
    rows = {
        "best epoch": _best(result),
        "images/s": _speed(result),
        "cumulative training time": f"{result.seconds:,.1f} seconds",
        "model": model,
        "curve": f"{folder / 'history.csv'}",
        "report": f"kdist report {shlex.quote(result.run_dir)}",
    }
    noise = result.history.get("gradient_noise_scale", [])
    if noise and noise[-1] == noise[-1]:  # NaN where it is unknown
        rows["gradient noise scale"] = (
            f"{count(noise[-1], 'image')}: more replicas help up to about this global batch"
        )
    return _two_columns(rows.items())


def _base_rate(config: TrainConfig) -> str:
    return f"{config.base_lr:g} for one replica, " if config.model is None else ""


def _per_replica(plan: TrainPlan) -> str:
    """One that is resumed on more replicas may divide its batch with a remainder."""
    most = plan.batch_per_replica
    return f"{most}" if most * plan.replicas == plan.global_batch else f"at most {most}"


def _best(result: "TrainResult") -> str:
    """A model of the user's may report no accuracy."""
    has_accuracy = {"accuracy", "val_accuracy"} & result.history.keys() or not result.history
    signs = {"val_accuracy": 1} if has_accuracy else {"val_loss": -1, "loss": -1}
    for name, sign in signs.items():
        values = result.history.get(name, [])
        known = [(sign * value, -epoch) for epoch, value in enumerate(values, 1) if value == value]
        if known:
            best, epoch = max(known)
            return f"{-epoch} of {result.epochs}, {name} {sign * best:.4f}"
    return "unknown, no epoch was validated"


def _speed(result: "TrainResult") -> str:
    if result.images_per_sec is None:
        return "unknown, no epoch was finished"
    which = "median after the first epoch" if result.epochs > 1 else "of one epoch, with its start"
    return f"{result.images_per_sec:,.0f} ({which})"


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value}"


def _two_columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"  {name}", value)
    screen = Console()
    width = screen.width if screen.is_terminal else _WIDE
    text = io.StringIO()
    Console(file=text, width=width, markup=False, emoji=False, highlight=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


_BAR = 20
_SHORTEST_BAR = 5
# Keras's time left and time per step: ` 10:00:00 999ms/step`.
_TIMES = 20
# In `logs` beside `images_per_sec`, from which they follow.
_DERIVED = ("images_per_sec", "images_per_sec_per_replica", "seconds_per_step")


class _Progress(keras.callbacks.ProgbarLogger):
    """What `Checkpoint` asks of callbacks: there is nothing to resume."""

    def get_state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


class EpochLines(_Progress):
    """Prints one line per epoch, in place of Keras's progress bar.

    Args:
        total_time: Counts the seconds; it has to come earlier in the list of callbacks.
    """

    def __init__(self, total_time: PrintTotalTime) -> None:
        super().__init__()
        self.total_time = total_time

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print nothing yet."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Print nothing yet."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the line."""
        values = describe_epoch(logs or {}, self.total_time.seconds)
        print(f"Epoch {epoch + 1}/{self.epochs}: {values}", flush=True)


class FittedBar(_Progress):
    """Keras's progress bar with the metrics that fit the terminal, then a line with the others.

    A bar that is wider than the terminal is printed anew at every step.

    Args:
        total_time: Counts the seconds; it has to come earlier in the list of callbacks.
        console: For the width of the terminal, which may change.
    """

    def __init__(self, total_time: PrintTotalTime, console: Console) -> None:
        super().__init__()
        self.total_time = total_time
        self.console = console
        self._shown: dict[str, float] = {}
        self._metrics: set[str] = set()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin a bar."""
        self._shown = {}
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Show the metrics of training that fit."""
        self._metrics.update(logs or {})
        super().on_train_batch_end(batch, self._fitting(logs or {}))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the metrics of validation that fit, and print all other values below."""
        logs = logs or {}
        super().on_epoch_end(epoch, self._fitting(logs))
        rest = {name: value for name, value in logs.items() if name not in self._shown}
        print(describe_epoch(rest, self.total_time.seconds), flush=True)

    def _fitting(self, logs: Mapping[str, Any]) -> dict[str, float]:
        count = len(f"{self.target}/{self.target} ") if self.target else len("      1/Unknown")
        room = self.console.width - 1 - count - _TIMES - _SHORTEST_BAR
        room -= sum(map(_width, self._shown.items()))
        for name, value in logs.items():
            if name in self._shown or name.removeprefix("val_") not in self._metrics:
                continue
            width = _width((name, value))
            if width <= room:
                self._shown[name] = value
                room -= width
        if self.progbar is not None:
            self.progbar.width = max(_SHORTEST_BAR, min(_BAR, _SHORTEST_BAR + room))
        self._shown.update({name: logs[name] for name in self._shown if name in logs})
        return self._shown


def _width(metric: tuple[str, Any]) -> int:
    name, value = metric
    shown = f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"  # as Keras writes it
    return len(f" - {name}: {shown}")


def describe_epoch(logs: Mapping[str, Any], seconds: float) -> str:
    """Format the values of an epoch in one line.

    Args:
        logs: Values by name, as Keras's callbacks get them.
        seconds: Since training began.

    Example:
        >>> describe_epoch({"val_accuracy": 0.85214, "images_per_sec": 1184.7}, 9.48)
        'val_accuracy 0.8521, 1,185 images/s, 9.5 seconds so far'
    """
    words = [f"{name} {_number(value)}" for name, value in logs.items() if name not in _DERIVED]
    if "images_per_sec" in logs:
        words.append(f"{logs['images_per_sec']:,.0f} images/s")
    return ", ".join([*words, f"{seconds:,.1f} seconds so far"])


def _number(value: Any) -> str:
    number = float(value)
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4f}" if abs(number) > 1e-3 or not number else f"{number:.3e}"


def make_progress(
    verbose: int, total_time: PrintTotalTime, *, console: Console | None = None
) -> list[keras.callbacks.Callback]:
    """Make the callback that shows the progress of a run, if any.

    Args:
        verbose: 0 for none, 2 for a line per epoch, 1 for a bar too where it can be redrawn.
        total_time: Counts the seconds.
        console: Where to; standard output by default.
    """
    console = console or Console()
    if not verbose:
        return []
    redraws = (console.is_terminal and not console.is_dumb_terminal) or console.is_jupyter
    return [FittedBar(total_time, console) if verbose == 1 and redraws else EpochLines(total_time)]
