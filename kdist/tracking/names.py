"""Names and options of trackers, checked before wandb, TensorBoard or MLflow is imported."""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import UserError
from ..versions import require

TRACKERS = ("wandb", "tensorboard", "mlflow", "none")

_REAL = TRACKERS[:-1]
# The trackers that use an option. Some options are listed twice: `track_batches` is the setting for
# `every_batches`.
_NEEDS = {
    "every_batches": _REAL,
    "track_batches": _REAL,
    "telemetry": _REAL,
    "log_model": ("wandb",),
}
_WANDB_MODES = ("", "online", "offline", "shared", "disabled")
_OLDER_MODES = {"run": "online", "dryrun": "offline"}


def tracker_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Example:
        >>> tracker_names(["tensorboard,wandb", "wandb"])
        ('wandb', 'tensorboard')
    """
    parts: list[Any] = []
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        parts += [] if names is None else [names]
    else:
        parts += names
    if not all(isinstance(part, str) for part in parts):
        raise UserError(f"track takes names ({', '.join(TRACKERS)}), received {names!r}")
    asked = {name.strip() for part in parts for name in part.split(",")} - {""}
    unknown = sorted(asked - set(TRACKERS))
    if unknown:
        raise UserError(f"unknown tracker {', '.join(unknown)}: known are {', '.join(TRACKERS)}")
    if "none" in asked and len(asked) > 1:
        others = ", ".join(sorted(asked - {"none"}))
        raise UserError(f"received the tracker none together with {others}: remove one of them")
    return tuple(name for name in TRACKERS if name in asked - {"none"})


def check_options(trackers: Collection[str], **options: object) -> None:
    """Reject an option whose tracker is not requested.

    Args:
        trackers: The requested trackers.
        options: `every_batches`, `log_model`, `telemetry`, or the names of their settings;
            `None` and `False` mean that an option is not used.

    Raises:
        UserError: An option would have no effect.
    """
    for name, value in options.items():
        if value not in (None, False) and not set(_NEEDS[name]) & set(trackers):
            needed = " or ".join(_NEEDS[name])
            raise UserError(f"{name}={value} does nothing without {needed}: add it to the trackers")


def asked_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return the mode that `WANDB_MODE` requests; `""` if it is not set.

    Raises:
        UserError: The value is not a mode of wandb.
    """
    asked = environment.get("WANDB_MODE", "")
    mode = _OLDER_MODES.get(asked, asked)
    if mode not in _WANDB_MODES:
        raise UserError(
            f"WANDB_MODE has to be one of {', '.join(_WANDB_MODES[1:])}; received {asked}: change"
            " or unset it"
        )
    return mode


def check_trackers(trackers: Collection[str]) -> None:
    """Check, before their packages are imported, that trackers can start.

    Raises:
        UserError: `WANDB_MODE` is invalid, or MLflow is not installed.
    """
    if "wandb" in trackers:
        asked_mode()
    if "mlflow" in trackers:
        require("mlflow")
