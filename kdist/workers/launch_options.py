"""Options of `kdist launch`; `WorkerSettings`, the limits of a worker's waits."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Ge, Le

from ..errors import UserError
from ..fields import Folder, check_fields, fields_of

AUTO: Literal["auto"] = "auto"
MOST_WORKERS = 1024

_DEFAULT_GRACE = 30.0
_LONGEST_SECONDS = 999_999  # eleven days; TensorFlow counts milliseconds in 32 bits
_SecondsOrZero = Annotated[float, Ge(0), Le(_LONGEST_SECONDS)]
_PositiveSeconds = Annotated[float, Ge(1), Le(_LONGEST_SECONDS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Launch.

    The first line is the title of the options' group in the help text.

    Attributes:
        workers: Number of workers; `None` starts one for each GPU, or one without GPUs.
        ray: Start the workers on a Ray cluster, in this folder, which the cluster's machines have
            to share.
        max_restarts: How many times to restart all workers after a worker has failed.
        elastic: When workers are killed or stopped from outside, restart the remaining workers at
            once; with checkpoints, training continues from the newest checkpoint.
        grace: Seconds after a signal until workers still running are killed.
        log_dir: Folder for the workers' log files.

    Raises:
        UserError: An option is out of range.
    """

    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] | None = None
    ray: bool = False
    max_restarts: Annotated[int, Ge(0)] = 0
    elastic: bool = False
    grace: _SecondsOrZero = _DEFAULT_GRACE
    log_dir: Folder | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ray and (self.log_dir is not None or self.grace != _DEFAULT_GRACE):
            raise UserError(
                "log_dir and grace have no effect with ray, as Ray keeps the workers' logs, and"
                " ends workers at once: leave out --log-dir and --grace"
            )
        if self.ray and self.elastic and not self.max_restarts:
            raise UserError(
                "received ray and elastic without max_restarts, although Ray counts each lost"
                " worker as a restart: pass, for example, --max-restarts 3 to survive the loss of"
                " three workers"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How long workers wait.

    Attributes:
        heartbeat_seconds: A worker without a heartbeat for this long is lost, and all workers end.
        hang_seconds: When no step has ended for this long, all workers print their stacks and end;
            0 for never.
        start_timeout_seconds: How long a worker waits for all other workers to start.
    """

    heartbeat_seconds: _PositiveSeconds = 10.0
    hang_seconds: _SecondsOrZero = 600.0
    start_timeout_seconds: _PositiveSeconds = 600.0

    def __post_init__(self) -> None:
        check_fields(self)


_SETTING_VARIABLES = {
    field.name: (f"KDIST_{field.name.upper()}", field) for field in fields_of(WorkerSettings)
}


def wait_limits_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that set limits of workers' waits."""
    names = {variable for variable, _ in _SETTING_VARIABLES.values()}
    return {name: text for name, text in environment.items() if name in names}


def worker_settings(environment: Mapping[str, str], **given: float | None) -> WorkerSettings:
    """Return the settings of a worker."""
    found = {name: value for name, value in given.items() if value is not None}
    for name, (variable, field) in _SETTING_VARIABLES.items():
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
