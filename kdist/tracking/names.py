"""The trackers' names, and the settings of `kdist train` that are about them."""

from collections.abc import Collection, Iterable

from ..arguments import as_integer
from ..errors import UserError

TRACKERS = ("wandb", "tensorboard", "csv", "none")

_NEEDED = {
    "every_batches": ("wandb", "tensorboard"),
    "track_batches": ("wandb", "tensorboard"),
    "log_model": ("wandb",),
    "profile_batches": ("tensorboard",),
}


def tracker_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """The trackers that are asked for, each once, in the order of `TRACKERS`; none without any.

    Args:
        names: Names, or names between commas, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: An unknown name, or `"none"` beside another.

    Example:
        >>> tracker_names(["csv,wandb", "wandb"])
        ('wandb', 'csv')
    """
    parts = [names] if isinstance(names, str) else list(names or ())
    if not all(isinstance(part, str) for part in parts):
        raise UserError(f"track names trackers ({', '.join(TRACKERS)}), received {names!r}")
    asked = {name.strip() for part in parts for name in part.split(",")} - {""}
    unknown = sorted(asked - set(TRACKERS))
    if unknown:
        raise UserError(f"unknown tracker {', '.join(unknown)}: there are {', '.join(TRACKERS)}")
    if "none" in asked and len(asked) > 1:
        others = ", ".join(sorted(asked - {"none"}))
        raise UserError(f"received the tracker none beside {others}: leave one of them out")
    return tuple(name for name in TRACKERS if name in asked - {"none"})


def first_and_last_step(steps: str | Iterable[int] | None) -> tuple[int, int] | None:
    """The first and last training step to profile, counted from 1.

    Args:
        steps: `"10,20"`, `(10, 20)`, or one step; `None` for none.

    Raises:
        UserError: Anything else, or steps that are out of order.

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
            f"profile_batches is the first and the last step to profile, such as 10,20; received"
            f" {steps!r}"
        )
    first, last = known[0], known[-1]
    if not 1 <= first <= last:
        raise UserError(
            f"profile_batches counts steps from 1, the first before the last; received {steps!r}"
        )
    return first, last


def check_options(trackers: Collection[str], **options: object) -> None:
    """Refuse an option whose tracker is not asked for.

    Args:
        trackers: The trackers that are.
        options: `every_batches`, `log_model`, `profile_batches`, or the setting's name for them;
            `None` and `False` ask for nothing.

    Raises:
        UserError: An option would do nothing.
    """
    for name, value in options.items():
        needed = _NEEDED[name]
        if value not in (None, False) and not set(needed) & set(trackers):
            raise UserError(f"{name}={value} does nothing without {' or '.join(needed)}: track it")
