"""TensorFlow's strategy for several workers, on the devices that each is given."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    distribute_utils,
    multi_worker_util,
)
from tensorflow.python.eager import context

from .hooks import StrategyHooks

_bases = itertools.count(step=1000)


def multi_worker_extended(
    strategy: tf.distribute.Strategy,
    resolver: Any,
    options: Any,
    *,
    devices: Sequence[str],
    before_variable: Callable[[Any], None],
    heartbeat_seconds: float,
    start_timeout_seconds: float,
) -> Any:
    """Return the implementation of a strategy of several workers.

    Args:
        strategy: The strategy that it is for.
        resolver: The `tf.distribute.cluster_resolver.ClusterResolver`.
        options: The `tf.distribute.experimental.CommunicationOptions`.
        devices: Names of this worker's devices, such as `CPU:0`.
        before_variable: Called with the initial value of a variable, which the chief is about to
            send to all workers.
        heartbeat_seconds: A worker that is not heard of for this long has failed.
        start_timeout_seconds: How long a worker waits for the chief.
    """
    # Read by TensorFlow: the groups of two strategies of a process must not meet.
    strategy._collective_key_base = next(_bases)
    timeouts = {
        "heartbeat_timeout_in_ms": int(1000 * heartbeat_seconds),
        "cluster_register_timeout_in_ms": int(1000 * start_timeout_seconds),
    }
    return _Extended(strategy, resolver, options, devices, before_variable, timeouts)


class _Extended(collective_all_reduce_strategy.CollectiveAllReduceExtended):
    """Uses several logical CPUs per worker, where TensorFlow's own uses one."""

    def __init__(
        self,
        strategy: Any,
        resolver: Any,
        options: Any,
        devices: Sequence[str],
        before_variable: Callable[[Any], None],
        timeouts: Mapping[str, int],
    ) -> None:
        self._names = tuple(devices)
        self._timeouts = timeouts
        self._before_variable = before_variable
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)

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
            self._before_variable(value)
            return value

        return make(replica_id, device, primary_var, **{**options, "initial_value": checked_value})


def worker_counts(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Return the number of workers of a strategy, and the number of this one among them."""
    return strategy.extended._num_workers, strategy.extended._id_in_cluster


def uses_collectives(strategy: Any) -> bool:
    """Whether replicas exchange values by collectives, also those of one worker."""
    is_multi_worker = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return is_multi_worker and isinstance(strategy, StrategyHooks)


def worker_addresses(resolver: Any) -> tuple[list[str], int]:
    """Return the addresses of all workers by number, and the number of this one."""
    spec = multi_worker_util.normalize_cluster_spec(resolver.cluster_spec())
    addresses = [
        at for job in ("chief", "worker") if job in spec.jobs for at in spec.job_tasks(job)
    ]
    if not addresses:
        return [], 0
    return addresses, multi_worker_util.id_in_cluster(spec, resolver.task_type, resolver.task_id)


def is_started() -> bool:
    """Whether TensorFlow has started, so that it can no longer be one of several workers."""
    return bool(context.context()._context_handle)


def replica_place() -> Any:
    """Return the place of the current replica's rows in the global batch.

    TensorFlow deals out the parts of a batch to the workers in turn, and numbers replicas worker by
    worker: of 2 workers of 2 replicas, replica 1 has the third part.
    """
    replica_context = tf.distribute.get_replica_context()
    index = replica_context.replica_id_in_sync_group
    static = tf.get_static_value(index)
    index = index if static is None else int(static)
    workers = getattr(replica_context.strategy.extended, "_num_workers", 1)
    local = replica_context.num_replicas_in_sync // workers
    return index if workers == 1 else index % local * workers + index // local


def replica_values(strategy: tf.distribute.Strategy, variable: Any) -> Any:
    """Return the copies of a variable on all replicas of all workers, shape `(replicas, ...)`."""
    parts = [tf.convert_to_tensor(part) for part in strategy.experimental_local_results(variable)]
    if getattr(strategy.extended, "_num_workers", 1) == 1:
        return tf.stack(parts)
    rows = distribute_utils.regroup([part[None] for part in parts], always_wrap=True)
    return strategy.gather(rows, axis=0)
