"""Options of `kdist launch`; `WorkerSettings`, the limits of a worker's waits."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..fields import Folder, check_fields, fields_of

AUTO: Literal["auto"] = "auto"
MOST_WORKERS = 1024

_GRACE = 30.0
_LONGEST = 999_999  # eleven days; TensorFlow counts milliseconds in 32 bits
_Seconds = Annotated[float, Ge(0), Le(_LONGEST)]
_Wait = Annotated[float, Ge(1), Le(_LONGEST)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Launch.

    Attributes:
        workers: Number of workers; `None` starts one for each GPU, or one without GPUs.
        ray: Start the workers on a Ray cluster, in this folder, which its machines have to share.
        max_restarts: How often to restart all workers after one has failed.
        elastic: When workers are killed or stand still, start those that are left again at once,
            with checkpoints at the step after the newest.
        grace: Seconds after a signal until workers still running are killed.
        log_dir: Folder for the workers' log files.

    Raises:
        UserError: An option is out of range.
    """

    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = None
    ray: bool = False
    max_restarts: Annotated[int, Ge(0)] = 0
    elastic: bool = False
    grace: _Seconds = _GRACE
    log_dir: Folder | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ray and (self.log_dir is not None or self.grace != _GRACE):
            raise UserError(
                "received log_dir or grace with ray: remove them, as Ray keeps the workers' logs,"
                " and ends workers at once"
            )
        if self.ray and self.elastic and not self.max_restarts:
            raise UserError(
                "received ray and elastic without max_restarts: pass the number of losses to go on"
                " after, such as --max-restarts 3, as Ray counts each as a restart"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How long workers wait.

    Attributes:
        heartbeat_seconds: A worker that is not heard of for this long is lost, and all end.
        hang_seconds: When no step has ended for this long, all workers print their stacks and end;
            0 for never.
        start_timeout_seconds: How long a worker waits for all others to start.
    """

    heartbeat_seconds: _Wait = 10.0
    hang_seconds: _Seconds = 600.0
    start_timeout_seconds: _Wait = 600.0

    def __post_init__(self) -> None:
        check_fields(self)


_VARIABLES = {
    field.name: (f"KDIST_{field.name.upper()}", field) for field in fields_of(WorkerSettings)
}


def select_limits(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that set limits of workers' waits."""
    names = {variable for variable, _ in _VARIABLES.values()}
    return {name: text for name, text in environment.items() if name in names}


def worker_settings(environment: Mapping[str, str], **given: float | None) -> WorkerSettings:
    """Return the settings of a worker."""
    found = {name: value for name, value in given.items() if value is not None}
    for name, (variable, field) in _VARIABLES.items():
        text = environment.get(variable)
        if name in found or not text:
            continue
        try:
            found[name] = field.check(float(text))
        except (ValueError, UserError):
            raise UserError(
                f"received {variable}={text!r}: expected seconds, {field.bounds}"
            ) from None
    return WorkerSettings(**found)
