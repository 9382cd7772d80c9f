"""A worker's place among all workers."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from ..arguments import read_tf_config
from ..errors import UserError
from .cluster import TASKS

RANK, WORLD_SIZE, RESTART_COUNT = "KDIST_RANK", "KDIST_WORLD_SIZE", "KDIST_RESTART_COUNT"
NOTES = "KDIST_LAUNCH_NOTES"
"""Variable with the path of a folder that only the workers of a launch share, in all restarts."""


def worker_environment(addresses: Sequence[str], *, rank: int, restarts: int) -> dict[str, str]:
    """Return the environment variables of the place of a worker on this machine."""
    task = {"type": "worker", "index": rank}
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task}),
        RANK: str(rank),
        WORLD_SIZE: str(len(addresses)),
        RESTART_COUNT: str(restarts),
    }


@dataclasses.dataclass(frozen=True)
class WorkerPlace:
    """The role of this process among the workers that train together.

    Attributes:
        workers: Number of workers.
        is_chief: Whether this process prints, and writes the run's files.
    """

    workers: int = 1
    is_chief: bool = True


def worker_place(environment: Mapping[str, str]) -> WorkerPlace:
    """Return the role that `TF_CONFIG` gives this process, for example under `kdist launch`.

    An invalid `TF_CONFIG` raises no error here: the strategy reports it.

    Example:
        >>> worker_place({})
        WorkerPlace(workers=1, is_chief=True)
    """
    try:
        cluster, task = read_tf_config(environment.get("TF_CONFIG", ""))
    except UserError:
        return WorkerPlace(workers=2, is_chief=True)
    workers = sum(len(cluster[kind]) for kind in cluster if kind in TASKS)
    first = "chief" if "chief" in cluster else "worker"
    is_chief = (task.get("type"), task.get("index")) == (first, 0)
    return WorkerPlace(workers, is_chief) if workers > 1 else WorkerPlace()


def refuse_workers(environment: Mapping[str, str], command: str, *, instead: str) -> None:
    """Reject a command that starts trainings itself when a launcher has started several workers."""
    workers = worker_place(environment).workers
    if workers > 1:
        raise UserError(
            f"{command} starts its own trainings, each on one machine, but TF_CONFIG has"
            f" {workers} workers: {instead}"
        )
