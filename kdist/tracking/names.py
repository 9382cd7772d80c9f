"""Names of trackers, and checks of the settings that belong to them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..arguments import as_integer
from ..errors import UserError
from .tracker_kinds import TRACKER_KINDS

TRACKERS = (*TRACKER_KINDS, "none")

# Settings by the names of the options that they are for.
_OPTIONS = {"track_batches": "every_batches"}


def tracker_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Example:
        >>> tracker_names(["csv,wandb", "wandb"])
        ('wandb', 'csv')
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


def first_and_last_step(steps: str | Iterable[int] | None) -> tuple[int, int] | None:
    """Return the first and last training step to profile, counted from 1.

    Args:
        steps: `"10,20"`, `(10, 20)`, or one step; `None` for none.

    Raises:
        UserError: `steps` is anything else, or the steps are out of order.

    Example:
        >>> first_and_last_step("10,20")
        (10, 20)
    """
    if steps is None:
        return None
    given = steps.split(",") if isinstance(steps, str) else steps
    parts = list(given) if isinstance(given, Iterable) else [given]
    try:
        numbers = [int(n) if isinstance(n, str) else as_integer(n) for n in parts]
    except ValueError:
        numbers = []
    known = [number for number in numbers if number is not None]
    if len(known) != len(parts) or len(known) not in (1, 2):
        raise UserError(
            f"profile_batches has to be the first and the last step to profile, such as 10,20;"
            f" received {steps!r}"
        )
    first, last = known[0], known[-1]
    if not 1 <= first <= last:
        raise UserError(
            "profile_batches counts steps from 1, and the first cannot be after the last; received"
            f" {steps!r}"
        )
    return first, last


def check_options(trackers: Collection[str], **options: object) -> None:
    """Reject an option whose tracker is not requested.

    Args:
        trackers: The requested trackers.
        options: `every_batches`, `log_model`, `profile_batches`, or the names of their settings;
            `None` and `False` mean that an option is not used.

    Raises:
        UserError: An option would have no effect.
    """
    for name, value in options.items():
        option = _OPTIONS.get(name, name)
        needed = [kind for kind, one in TRACKER_KINDS.items() if option in one.options]
        if value not in (None, False) and not set(needed) & set(trackers):
            raise UserError(
                f"{name}={value} does nothing without {' or '.join(needed)}: add it to the trackers"
            )
