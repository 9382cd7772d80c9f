"""A worker's place among all workers, and their cluster, from `TF_CONFIG` or Slurm."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import TF_CONFIG_EXAMPLE, read_tf_config
from ..errors import UserError

TASKS = ("chief", "worker")
# The first ports of blocks of 20 ports: each job step has a block, and each worker on a node a port
# of the block. Linux uses none of these ports for outgoing connections.
_SLURM_PORTS = range(12000, 32000, 20)
_STEPS_OF_A_JOB = 61  # not a divisor of the number of blocks
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

    The chief prints, and writes the run's files.
    """

    workers: int = 1
    is_chief: bool = True


def worker_place(environment: Mapping[str, str]) -> WorkerPlace:
    """Return the role that `TF_CONFIG` gives this process, for example under `kdist launch`.

    An invalid `TF_CONFIG` raises no error here: the strategy reports it.

    Examples:
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


def find_cluster() -> Any:
    """Return the `ClusterResolver` of this process, from `TF_CONFIG` or else from Slurm.

    Without both, its cluster is empty: the process is a single worker.
    """
    import tensorflow as tf

    from .._upstream.worker_devices import SlurmTasks

    if os.environ.get("TF_CONFIG", "").strip():
        check_tf_config(os.environ["TF_CONFIG"])
        return tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in os.environ:
        tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
        return SlurmTasks(tasks=tasks, port=slurm_port(os.environ))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))


def slurm_port(environment: Mapping[str, str]) -> int:
    """Return the first of the 20 ports that a Slurm job step has on each of its nodes.

    Jobs on the same node have different ports if their numbers are less than 1000 apart. Up to 61
    steps of a job that run at once have different ports, too.

    Examples:
        >>> slurm_port({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2"})
        13260
    """
    job, step = (int(environment.get(name) or 0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return _SLURM_PORTS[(job * _STEPS_OF_A_JOB + step % _STEPS_OF_A_JOB) % len(_SLURM_PORTS)]


def check_tf_config(text: str) -> None:
    """Check that `TF_CONFIG` describes a cluster of workers with this process in it.

    An empty cluster is valid: it is a single worker.
    """
    cluster, task = read_tf_config(text)
    if not cluster:
        return  # a single worker
    others = [name for name in cluster if name not in TASKS]
    if others:
        raise UserError(
            f"TF_CONFIG has tasks of the type {others[0]!r}, but kdist trains only in"
            ' tasks of the types "worker" and "chief": leave out the others'
        )
    kind, index = task.get("type"), task.get("index")
    if not isinstance(kind, str) or kind not in cluster:
        raise UserError(
            f"TF_CONFIG gives this process the task type {kind!r}, but its cluster has only"
            f" {_names(cluster)}: expected text such as {TF_CONFIG_EXAMPLE}"
        )
    if not isinstance(index, int) or not 0 <= index < len(cluster[kind]):
        raise UserError(
            f"TF_CONFIG has the task index {index!r}, but its cluster has {len(cluster[kind])}"
            f" tasks of the type {kind!r}: their indices are 0 to {len(cluster[kind]) - 1}"
        )


def _names(cluster: Mapping[str, Any]) -> str:
    return " and ".join(map(repr, cluster))
