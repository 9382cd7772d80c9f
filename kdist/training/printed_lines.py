"""Lines that a run prints before and after training: settings and result."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..strategies.hardware import device_names
from .config import TrainConfig, TrainPlan
from .run_folder import RunFolder, find_saved_model
from .run_record import TrainResult
from .settings import model_name

# Settings that the first rows show, or that are part of the model's name.
_SHOWN_SETTINGS = {
    *("replicas", "batch_size", "base_lr", "lr_rule", "epochs", "run_dir"),
    *("model", "depth", "width"),
}


def format_settings(
    config: TrainConfig, plan: TrainPlan, devices: tuple[str, ...], folder: RunFolder
) -> list[str]:
    """Format the settings as a table: the plan, then settings that differ from their defaults."""
    hardware = ", ".join(dict.fromkeys(device_names(devices)))
    per_replica = f"{plan.batch_per_replica}"
    if plan.global_batch % plan.replicas:  # resumed on a different number of replicas
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
        name: f"{_format_setting(value)} (default {_format_setting(default[name])})"
        for name, value in config.to_dict().items()
        if name not in _SHOWN_SETTINGS and value != default[name]
    }
    return _align_columns({**rows, **changed})


def format_result(result: TrainResult) -> list[str]:
    """Format a result as a table: the best epoch, the speed, and the paths of its files."""
    folder = Path(result.run_dir)
    rows = {
        "best epoch": _format_best(result),
        "images/s": _format_speed(result),
        "cumulative training time": f"{result.seconds:,.1f} seconds",
        "model": f"{find_saved_model(folder) or 'not saved'}",
        "curve": f"{folder / 'history.csv'}",
        "report": f"kdist report {shlex.quote(result.run_dir)}",
    }
    return _align_columns(rows)


def _format_best(result: TrainResult) -> str:
    """Format the best epoch: by accuracy, or by loss if the model reports no accuracy."""
    has_accuracy = {"accuracy", "val_accuracy"} & result.history.keys() or not result.history
    signs = {"val_accuracy": 1} if has_accuracy else {"val_loss": -1, "loss": -1}
    for name, sign in signs.items():
        values = result.history.get(name, [])
        known = [(sign * value, -epoch) for epoch, value in enumerate(values, 1) if value == value]
        if known:
            best, epoch = max(known)
            return f"{-epoch} of {result.epochs}, {name} {sign * best:.4f}"
    return "unknown, no epoch was validated"


def _format_speed(result: TrainResult) -> str:
    if result.images_per_sec is None or not math.isfinite(result.images_per_sec):
        return "unknown, no epoch was finished"
    epochs = (
        "median after the first epoch" if result.epochs > 1 else "of one epoch, including its start"
    )
    return f"{result.images_per_sec:,.0f} ({epochs})"


def _format_setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value}"


def _align_columns(rows: Mapping[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name:<{width}}  {value}" for name, value in rows.items()]


def format_count(number: float, noun: str) -> str:
    """Return a number, rounded, with its noun.

    Examples:
        >>> format_count(1200, "run"), format_count(1.2, "image")
        ('1,200 runs', '1 image')
    """
    rounded = f"{number:,.0f}"
    return f"{rounded} {noun}{'' if rounded == '1' else 's'}"
