"""`WorkerPlace`: which of several workers this process is, before TensorFlow is imported."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..runs.run_folder import RunFolder

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class WorkerPlace:
    """This process among those that train together.

    Attributes:
        workers: Their number.
        is_chief: Whether this one writes the run's files and prints.
    """

    workers: int = 1
    is_chief: bool = True


def worker_place(environment: Mapping[str, str]) -> WorkerPlace:
    """Return the place that `TF_CONFIG` gives this process, such as under `kdist launch`.

    What is wrong with a `TF_CONFIG`, the strategy says.

    Args:
        environment: Such as `os.environ`.

    Example:
        >>> worker_place({})
        WorkerPlace(workers=1, is_chief=True)
    """
    try:
        config = json.loads(environment.get("TF_CONFIG") or "{}")
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        workers = sum(len(cluster[kind]) for kind in cluster if kind in ("chief", "worker"))
        first = "chief" if "chief" in cluster else "worker"
        is_chief = (task.get("type"), task.get("index")) == (first, 0)
    except (ValueError, TypeError, AttributeError):
        return WorkerPlace(workers=2, is_chief=True)
    return WorkerPlace(workers, is_chief) if workers > 1 else WorkerPlace()


def refuse_workers(environment: Mapping[str, str], command: str, *, instead: str) -> None:
    """Reject a command that starts trainings itself, where a launcher has started several.

    Args:
        environment: Such as `os.environ`.
        command: The command.
        instead: What to do.

    Raises:
        UserError: There are several workers.
    """
    workers = worker_place(environment).workers
    if workers > 1:
        raise UserError(
            f"{command} starts its own trainings, each on one machine, but TF_CONFIG has"
            f" {workers} workers: {instead}"
        )


class OtherWorkersFolder(RunFolder):
    """The run folder as a worker has it that is not the chief: it writes nothing."""

    is_written = False

    def __init__(self) -> None:
        self.path = Path("runs")
        self.is_resumed = False

    def discard(self) -> None:
        """Leave the run to the chief."""

    def remove_summary(self) -> None:
        """Leave the run to the chief."""

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Leave the run to the chief."""

    def save_model(self, model: "keras.Model") -> None:
        """Leave the run to the chief."""
