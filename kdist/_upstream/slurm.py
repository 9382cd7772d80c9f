"""The workers of a Slurm job step, as TensorFlow reads Slurm's variables."""

from typing import Any

import tensorflow as tf


class SlurmTasks(tf.distribute.cluster_resolver.SlurmClusterResolver):
    """Each task of a job step is a worker, on the node that Slurm has started it on.

    TensorFlow sorts the nodes by name, `n10` before `n2`, and so expects tasks on nodes that they
    are not on.

    Args:
        tasks: Their number.
        port: Of the first task on each node.
    """

    def __init__(self, *, tasks: int, port: int) -> None:
        # Slurm gives each task its GPUs (--gpus-per-task); TensorFlow's resolver would do so again.
        super().__init__(port_base=port, auto_set_gpu=False, gpus_per_node=tasks, gpus_per_task=1)

    def cluster_spec(self) -> Any:
        """Return the addresses of the workers, in the order of Slurm's tasks."""
        self.task_type, self.task_id = "worker", self._rank
        addresses = [
            f"{node}:{self._port_base + local}"
            for node, tasks in self._task_configuration.items()
            for local in range(tasks)
        ]
        return tf.train.ClusterSpec({"worker": addresses})
