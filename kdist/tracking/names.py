"""Names of trackers, checked before wandb or TensorBoard is imported."""

import os
from collections.abc import Collection, Sequence

from ..errors import UserError

TRACKERS = ("wandb", "tensorboard", "none")
_WANDB_MODES = ("online", "offline", "shared", "disabled", "run", "dryrun", "")


def tracker_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Example:
        >>> tracker_names(["tensorboard,wandb", "wandb"])
        ('wandb', 'tensorboard')
    """
    parts = names if isinstance(names, list | tuple) else [] if names is None else [names]
    requested = {name.strip() for part in parts for name in str(part).split(",")} - {""}
    unknown = sorted(requested - set(TRACKERS))
    if unknown:
        raise UserError(f"unknown tracker {', '.join(unknown)}: known are {', '.join(TRACKERS)}")
    if "none" in requested and len(requested) > 1:
        others = ", ".join(sorted(requested - {"none"}))
        raise UserError(
            f"received the tracker 'none' together with {others}: leave out 'none', or {others}"
        )
    return tuple(name for name in TRACKERS if name in requested - {"none"})


def check_trackers(trackers: Collection[str]) -> None:
    """Check, before wandb is imported, that trackers can start.

    Raises:
        UserError: `WANDB_MODE` is invalid.
    """
    mode = os.environ.get("WANDB_MODE", "")
    if "wandb" in trackers and mode not in _WANDB_MODES:
        raise UserError(
            f"WANDB_MODE has to be one of {', '.join(_WANDB_MODES[:4])}; received {mode}: change or"
            " unset the variable"
        )
