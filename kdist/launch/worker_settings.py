"""`WorkerSettings`: how long workers wait for each other, from the launcher to its workers."""

import dataclasses
import math
from collections.abc import Mapping

from ..errors import UserError

_LONGEST_SECONDS = 10_000_000  # TensorFlow counts milliseconds in 32 bits, of which this is less
_DEFAULTS = {"heartbeat_seconds": 10.0, "hang_seconds": 600.0, "start_timeout_seconds": 600.0}
_VARIABLES = {
    "heartbeat_seconds": "KDIST_HEARTBEAT_SECONDS",
    "hang_seconds": "KDIST_HANG_SECONDS",
    "start_timeout_seconds": "KDIST_START_TIMEOUT_SECONDS",
}
_LEAST = {"heartbeat_seconds": 1.0, "hang_seconds": 0.0, "start_timeout_seconds": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How long workers wait.

    Attributes:
        heartbeat_seconds: A worker that is not heard of for this long is lost, and ends all.
        hang_seconds: When no step has ended for this long, all workers print their stacks and end;
            0 for never.
        start_timeout_seconds: How long a worker waits for all others to start.

    Raises:
        UserError: A number is out of range.
    """

    heartbeat_seconds: float = _DEFAULTS["heartbeat_seconds"]
    hang_seconds: float = _DEFAULTS["hang_seconds"]
    start_timeout_seconds: float = _DEFAULTS["start_timeout_seconds"]

    def __post_init__(self) -> None:
        for name in _VARIABLES:
            check_seconds(name, getattr(self, name), source=name)


def check_seconds(name: str, value: object, *, source: str) -> None:
    """Check a number of seconds.

    Args:
        name: The attribute of `WorkerSettings`.
        value: Its value.
        source: What the user calls it, such as an option.

    Raises:
        UserError: It is out of range.
    """
    least = _LEAST[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and least <= value <= _LONGEST_SECONDS:  # type: ignore[arg-type, operator]
        return
    off = ", 0 for never" if least == 0 else ""
    raise UserError(
        f"received {source} {value!r}: pass seconds, from {least:g} to {_LONGEST_SECONDS}{off}"
    )


def variables(**seconds: float | None) -> dict[str, str]:
    """Return the environment variables that give settings to workers.

    Args:
        **seconds: Attributes of `WorkerSettings`; `None` leaves a variable as it is.
    """
    return {_VARIABLES[name]: f"{value!r}" for name, value in seconds.items() if value is not None}


def worker_settings(environment: Mapping[str, str], **given: float | None) -> WorkerSettings:
    """Return the settings of a worker.

    Args:
        environment: Such as `os.environ`, for those that are not given.
        **given: Attributes of `WorkerSettings`; `None` for those that the environment decides.

    Raises:
        UserError: A variable is not a number, or a number is out of range.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name, variable in _VARIABLES.items():
        if name in found or not environment.get(variable):
            continue
        try:
            found[name] = float(environment[variable])
        except ValueError:
            raise UserError(
                f"received {variable}={environment[variable]!r}: expected seconds"
            ) from None
        check_seconds(name, found[name], source=variable)
    return WorkerSettings(**found)
