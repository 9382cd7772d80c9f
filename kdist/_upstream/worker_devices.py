"""The cluster of several workers: devices, sums, Slurm."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    collective_util,
    multi_worker_util,
)
from tensorflow.python.eager import context

from .collective_launchers import set_key_base, set_launchers
from .hooks import StrategyHooks


class MultiWorkerExtended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
    """TensorFlow's implementation, with several logical CPUs per worker instead of a single CPU.

    `before_variable` is called with a variable's initial value, before the chief sends the value.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        resolver: Any,
        options: Any,
        *,
        devices: Sequence[str],
        before_variable: Callable[[Any], None],
        heartbeat_seconds: float,
        start_timeout_seconds: float,
    ) -> None:
        set_key_base(strategy, is_local=False)
        self._names = tuple(devices)
        self._timeouts = {
            "heartbeat_timeout_in_ms": int(1000 * heartbeat_seconds),
            "cluster_register_timeout_in_ms": int(1000 * start_timeout_seconds),
        }
        self._before_variable = before_variable
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)
        set_launchers(self._cross_device_ops)
        set_launchers(self._host_cross_device_ops)

    @property
    def collective_ops(self) -> Any:
        """TensorFlow's `CollectiveAllReduce` of all replicas."""
        return self._cross_device_ops

    def _update_config_proto(self, config_proto: Any) -> Any:
        config = super()._update_config_proto(config_proto)
        for name, milliseconds in self._timeouts.items():
            setattr(config.experimental.coordination_config, name, milliseconds)
        return config

    def _initialize_local_devices(self, cluster_resolver: Any, worker_device: str) -> Any:
        del cluster_resolver
        names = tuple(f"{worker_device}/device:{name}" for name in self._names)
        return names, self._names[0].partition(":")[0]

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **options: Any
    ) -> Any:
        make = super()._get_variable_creator_initial_value
        if replica_id != 0 or self._num_workers == 1:
            return make(replica_id, device, primary_var, **options)
        initial = options["initial_value"]

        def checked_value() -> Any:
            value = initial() if callable(initial) else initial
            self._before_variable(value)  # before TensorFlow counts the broadcast of the value
            return make(replica_id, device, primary_var, **{**options, "initial_value": value})()

        return checked_value


def worker_counts(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Return the number of workers of a strategy, and this worker's own number."""
    return strategy.extended._num_workers, strategy.extended._id_in_cluster


def uses_collectives(strategy: Any) -> bool:
    """Whether replicas exchange values by collectives; true even if there is only one worker."""
    is_multi_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return is_multi_worker and isinstance(strategy, StrategyHooks)


def worker_addresses(resolver: Any) -> tuple[list[str], int]:
    """Return the addresses of all workers by number, and this worker's own number."""
    spec = multi_worker_util.normalize_cluster_spec(resolver.cluster_spec())
    addresses = [
        at for job in ("chief", "worker") if job in spec.jobs for at in spec.job_tasks(job)
    ]
    if not addresses:
        return [], 0
    return addresses, multi_worker_util.id_in_cluster(spec, resolver.task_type, resolver.task_id)


def is_started() -> bool:
    """Whether TensorFlow has started, so that it can no longer join a cluster of workers."""
    return bool(context.context()._context_handle)


def sum_over_workers(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Return the sum over all workers; every worker has to pass the same number of values.

    The sum runs on the hosts, for any devices of the replicas. The collectives of a step cannot run
    there: NCCL sums only arrays on GPUs. Values are int32: this type keeps bit patterns as they are
    if the values of all other workers are 0.
    """
    extended = strategy.extended
    options = collective_util.Options(
        timeout_seconds=extended._communication_options.timeout_seconds,
        implementation=collective_util.CommunicationImplementation.RING,
    )
    with tf.device("/device:CPU:0"):
        tensor = tf.constant(values)
        total = extended._host_cross_device_ops.reduce(
            tf.distribute.ReduceOp.SUM, tensor, tensor, options=options
        )
    return np.asarray(total)


# Bytes per message when an array or a file is sent: the extra memory that a worker needs.
CHUNK_BYTES = 1 << 24


def send_bytes(strategy: tf.distribute.Strategy, data: bytes | None, length: int) -> bytes:
    """Return the chief's `length` bytes on all workers; the other workers pass `None`."""
    # A sum over workers is the broadcast: only the chief's words are not zero. A collective sums
    # numbers of four bytes.
    words = np.zeros(-(-length // 4), np.int32)
    if data is not None:
        words = np.frombuffer(data.ljust(4 * words.size, b"\0"), np.int32)
    return sum_over_workers(strategy, words).tobytes()[:length]


def send_array(
    strategy: tf.distribute.Strategy, array: np.ndarray, *, is_chief: bool
) -> np.ndarray:
    """Return the chief's array on all workers, whose arrays have the same shape and type."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    received = np.empty_like(flat)
    for start in range(0, flat.size, CHUNK_BYTES):
        part = flat[start : start + CHUNK_BYTES]
        data = send_bytes(strategy, part.tobytes() if is_chief else None, part.size)
        received[start : start + CHUNK_BYTES] = np.frombuffer(data, np.uint8)
    return received.view(array.dtype).reshape(array.shape)


class SlurmTasks(tf.distribute.cluster_resolver.SlurmClusterResolver):
    """Each task of a job step is a worker, on the node that Slurm has started it on.

    TensorFlow sorts the nodes by name, `n10` before `n2`, and so expects tasks on the wrong nodes.
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
