"""Lines that a run prints before and after training: settings and result."""

import io
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..strategies.hardware import device_names
from .config import TrainConfig, TrainPlan
from .folder import RunFolder, saved_model
from .networks import SIZES
from .record import TrainResult
from .settings import model_name

# Settings that the table always shows in rows of its own, or as part of the model's name.
_SHOWN = {
    *("replicas", "batch_size", "base_lr", "lr_rule", "epochs", "run_dir", "network", "model"),
    *SIZES,
}
# A file has no width, so lines are not broken.
_WIDE = 1000


def settings_lines(
    config: TrainConfig, plan: TrainPlan, devices: tuple[str, ...], folder: RunFolder
) -> list[str]:
    """Format the settings as a table: the plan, then settings that differ from their defaults.

    Args:
        config: The settings.
        plan: Batch and learning rate.
        devices: Names of the strategy's devices.
        folder: The run folder.
    """
    hardware = ", ".join(dict.fromkeys(device_names(devices)))
    per_replica = f"{plan.batch_per_replica}"
    if plan.global_batch % plan.replicas:  # of a run that is resumed on other replicas
        per_replica = f"at most {per_replica}"
    base = f"{config.base_lr:g} for one replica, " if config.model is None else ""
    rows = {
        "devices": f"{', '.join(devices)} ({hardware})",
        "replicas": f"{plan.replicas}",
        "model": model_name(config.to_dict()),
        "global batch": f"{plan.global_batch} ({per_replica} per replica)",
        "learning rate": f"{plan.learning_rate:g} ({base}rule {config.lr_rule})",
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


def result_lines(result: TrainResult) -> list[str]:
    """Format a result as a table: the best epoch, the speed, and the paths of its files."""
    folder = Path(result.run_dir)
    rows = {
        "best epoch": _best(result),
        "images/s": _speed(result),
        "cumulative training time": f"{result.seconds:,.1f} seconds",
        "model": f"{saved_model(folder) or 'not saved'}",
        "curve": f"{folder / 'history.csv'}",
        "report": f"kdist report {shlex.quote(result.run_dir)}",
    }
    return _two_columns(rows.items())


def _best(result: TrainResult) -> str:
    """A user's model may report no accuracy; the best loss is shown instead."""
    has_accuracy = {"accuracy", "val_accuracy"} & result.history.keys() or not result.history
    signs = {"val_accuracy": 1} if has_accuracy else {"val_loss": -1, "loss": -1}
    for name, sign in signs.items():
        values = result.history.get(name, [])
        known = [(sign * value, -epoch) for epoch, value in enumerate(values, 1) if value == value]
        if known:
            best, epoch = max(known)
            return f"{-epoch} of {result.epochs}, {name} {sign * best:.4f}"
    return "unknown, no epoch was validated"


def _speed(result: TrainResult) -> str:
    if result.images_per_sec is None or not math.isfinite(result.images_per_sec):
        return "unknown, no epoch was finished"
    epochs = "median after the first epoch" if result.epochs > 1 else "of one epoch, with its start"
    return f"{result.images_per_sec:,.0f} ({epochs})"


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


def count(number: float, noun: str) -> str:
    """Return a number, rounded, with its noun.

    Example:
        >>> count(1200, "run"), count(1.2, "image")
        ('1,200 runs', '1 image')
    """
    rounded = f"{number:,.0f}"
    return f"{rounded} {noun}{'' if rounded == '1' else 's'}"


def time_left(seconds: float) -> str:
    """Describe how long work still takes.

    Example:
        >>> time_left(42.4), time_left(90), time_left(9000)
        ('about 42 seconds left', 'about 1.5 minutes left', 'about 2.5 hours left')
    """
    if seconds < 60:
        return f"about {seconds:.0f} seconds left"
    if seconds < 7200:
        return f"about {seconds / 60:,.1f} minutes left"
    return f"about {seconds / 3600:,.1f} hours left"
