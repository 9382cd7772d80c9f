"""`MultiWorkerMirroredStrategy`: a drop-in replacement for TensorFlow's.

Before the workers wait for each other, they compare their work (`agreement.py`). A worker that
hangs or fails ends all workers (`hang_detection.py`, `worker_end.py`). `tf_config.py` finds the
cluster.
"""

import os
import platform
import secrets
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from .._upstream import all_patches, worker_store
from .._upstream.seeds import random_seed
from .._upstream.worker_devices import (
    MultiWorkerExtended,
    is_started,
    send_array,
    worker_addresses,
    worker_counts,
)
from .._upstream.worker_failures import abort_collectives, find_failures
from ..errors import LostWorkerError, UserError
from ..processes.child import send_answer
from ..spmd.collectives import Collectives, WorkerCollectives
from ..spmd.explanation import describe_plan, find_user_line
from ..spmd.fixed_order import WorkerFixedOrder
from ..spmd.plan import GraphPlan
from ..spmd.variables import GlobalVariables
from ..strategies.devices import device_type, first_devices, run_operations_on_one_core
from ..strategies.exact_strategy import ExactStrategy
from .agreement import DEFAULT_WAIT_SECONDS, Agreement
from .hang_detection import HangWatch, limit_start
from .launch_options import worker_settings
from .tf_config import find_cluster
from .worker_end import end_together

# Default of `bytes_per_pack`. The buckets of one worker's replicas are larger: `BUCKET_BYTES` in
# `spmd/buckets.py`.
DEFAULT_BYTES_PER_PACK = 4 * 1024 * 1024


class _Extended(GlobalVariables, MultiWorkerExtended):
    """TensorFlow's implementation, with variables whose values are global."""


# The limit with the better message has to expire first. `limit_start` names the missing workers, so
# TensorFlow's wait for the chief is longer. `HangWatch` prints the work of all workers, so the wait
# of an exchange is longer.
_START_MARGIN_SECONDS = 30.0
_EXCHANGE_MARGIN_SECONDS = 60.0


class MultiWorkerMirroredStrategy(ExactStrategy, tf.distribute.MultiWorkerMirroredStrategy):
    """Synchronous training on the replicas of several workers (processes on any machines).

    A `tf.distribute.MultiWorkerMirroredStrategy` with the promise of `MirroredStrategy`: the same
    model on any number of workers and replicas. Every worker runs the same script on the same data:
    all workers create, train and evaluate the model, and make predictions with it. Batches are
    global, and each worker trains on its part.

    Without a cluster there is a single worker, so the same script also runs on a single machine.

    Args:
        cluster_resolver: A `tf.distribute.cluster_resolver.ClusterResolver`. `None` uses the
            cluster in the environment variable `TF_CONFIG`, or else the tasks of a Slurm job step.
        communication_options: A `tf.distribute.experimental.CommunicationOptions`. Gradients are
            sent in buckets of its `bytes_per_pack`, 4 MiB by default, while later gradients are
            still being computed; a bucket that holds all gradients is sent after the backward pass.
            With a `timeout_seconds`, a worker waits that long for the other workers. By default, a
            comparison of the workers waits for `hang_seconds` plus a minute, or 600 seconds if that
            is longer, and while a worker is saving. Within a step a worker waits without limit.
        replicas: Number of replicas per worker, the same on all workers: the first `replicas`
            visible GPUs, or that many logical CPUs without a GPU. `None` uses every visible GPU, or
            the CPU without a GPU.
        shards: Number of parts of each batch, a multiple of the number of replicas. With
            the same `shards`, versions and kind of processor, all results have the same bits on any
            number of replicas and workers that divides `shards`. `None` makes one part per replica,
            which is faster; the results are then equal up to rounding.
        shard_optimizer: Whether the optimizer's state is divided over the replicas of all workers,
            as in `MirroredStrategy`. All workers have to read the state together, as in
            `model.save`.
        shard_weights: Whether the weights are divided, too, as in `MirroredStrategy`. All workers
            have to read the weights together.
        heartbeat_seconds: A worker that sends no heartbeat for this long, because its process or
            machine has frozen, is considered lost, and all workers end. `None` for the environment
            variable `KDIST_HEARTBEAT_SECONDS`, or 10.
        hang_seconds: If no step ends for this many seconds, every worker prints the stacks of its
            threads and the workers that are behind, and ends with exit code 124; 0 turns this off.
            `None` for `KDIST_HANG_SECONDS`, or 600.
        start_timeout_seconds: The longest wait for all workers to start. `None` for
            `KDIST_START_TIMEOUT_SECONDS`, or 600.

    Raises:
        UserError: The workers differ in versions, replicas or the sending of gradients;
            `TF_CONFIG` is invalid; TensorFlow has already started; or an argument is invalid.

    Examples:
        ```python
        strategy = kdist.MultiWorkerMirroredStrategy()  # before the first tensor
        model = strategy.build(lambda: WideResNet(input_shape=(28, 28, 1), classes=10))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, batch_size=64)  # the global batch, over all workers
        if strategy.is_chief:  # with divided variables, let all workers save
            model.save("model.keras")
        ```
    """

    def __init__(
        self,
        cluster_resolver: Any = None,
        communication_options: Any = None,
        *,
        replicas: int | None = None,
        shards: int | None = None,
        shard_optimizer: bool = False,
        shard_weights: bool = False,
        heartbeat_seconds: float | None = None,
        hang_seconds: float | None = None,
        start_timeout_seconds: float | None = None,
    ) -> None:
        settings = worker_settings(
            os.environ,
            heartbeat_seconds=heartbeat_seconds,
            hang_seconds=hang_seconds,
            start_timeout_seconds=start_timeout_seconds,
        )
        resolver = find_cluster() if cluster_resolver is None else cluster_resolver
        options = communication_options or tf.distribute.experimental.CommunicationOptions()
        _check_resolver(resolver)
        devices = first_devices(replicas)
        if shards is not None:
            run_operations_on_one_core()
        send_answer(replicas=len(devices), shards=shards)  # the launcher may start fewer workers
        self.bucket_bytes = options.bytes_per_pack or DEFAULT_BYTES_PER_PACK
        self._agreement = Agreement(0, 1, worker_store)
        addresses, worker = worker_addresses(resolver)
        limit = settings.start_timeout_seconds
        with limit_start(addresses, worker=worker, seconds=limit):
            extended = _Extended(
                self,
                resolver,
                options,
                devices=devices,
                shards=shards,
                divides_state=shard_optimizer,
                divides_weights=shard_weights,
                before_variable=self._compare_variable,
                heartbeat_seconds=settings.heartbeat_seconds,
                start_timeout_seconds=limit + _START_MARGIN_SECONDS,
            )
        tf.distribute.Strategy.__init__(self, extended)
        self.workers, self.worker = worker_counts(self)
        self._agreement = Agreement(
            self.worker,
            self.workers,
            worker_store,
            timeout_seconds=options.timeout_seconds
            or max(DEFAULT_WAIT_SECONDS, settings.hang_seconds + _EXCHANGE_MARGIN_SECONDS),
            failures=lambda: find_failures(self),
            may_take_longer=lambda: not options.timeout_seconds and self.step_watch.is_other_slow(),
        )
        self._finish_construction()
        if self.workers > 1:
            all_patches.install_for_workers()
            worker_store.start_store(
                is_chief=self.is_chief, heartbeat_seconds=settings.heartbeat_seconds
            )
            end_together(self.worker, lambda: find_failures(self))
            self._compare_start()
            if settings.hang_seconds:
                self.step_watch = watch = HangWatch(
                    self.worker,
                    self.workers,
                    worker_store,
                    seconds=settings.hang_seconds,
                    abort=abort_collectives,
                )
                watch.start()

    def __repr__(self) -> str:
        replicas = self.num_replicas_in_sync
        count = f"{replicas} replica{'s' * (replicas > 1)}"
        return (
            f"<kdist.MultiWorkerMirroredStrategy, worker {self.worker} of {self.workers}, {count}:"
            f" {', '.join(self.devices)} here>"
        )

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` for the global batch of all workers, as `MirroredStrategy.run` does."""
        if tf.inside_function():
            self.step_watch.record_trace()
        return super().run(fn, args, kwargs, options)

    def prepare(self, model: keras.Model, global_batch: int | None = None) -> None:
        state = self.model_state(model)
        if self.workers > 1 and not state.is_compared:
            event = "the start of training or evaluation"
            self.compare_workers(
                event,
                {
                    "the model's class": type(model).__name__,
                    "the number of weights": len(model.variables),
                    "the dtype policy": model.dtype_policy.name,
                    "run_eagerly": bool(model.run_eagerly),
                },
            )
            state.is_compared = True
        super().prepare(model, global_batch)

    def collectives(self) -> Collectives:
        """Return the collectives of the replicas of all workers."""
        in_fixed_order = self.extended.in_fixed_order
        if self.workers == 1:
            is_plain = not (self.on_gpus or in_fixed_order)
            return Collectives(self.extended.worker_devices) if is_plain else super().collectives()
        return (WorkerFixedOrder if in_fixed_order else WorkerCollectives)(
            self.extended.shard_devices,
            self.extended.collective_ops,
            worker=self.worker,
            workers=self.workers,
            bucket_bytes=self.bucket_bytes,
        )

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Divide a dataset's batches over the replicas of all workers.

        Every worker reads all data and keeps its part of every batch, unless the dataset's options
        choose a different `auto_shard_policy`.
        """
        if self.workers > 1 and isinstance(dataset, tf.data.Dataset):
            dataset = shard_by_data(dataset)
        return super().experimental_distribute_dataset(dataset, options)

    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        with self.step_watch.waiting(event):
            self._agreement.compare(event, values)

    def exchange(self, event: str, value: Any) -> list[Any]:
        with self.step_watch.waiting(event):
            return self._agreement.exchange(event, value)

    def chiefs_value(self, value: tf.Tensor) -> tf.Tensor:
        """Return the chief's initial value of a divided variable, of which all workers keep parts.

        Raises:
            UserError: The workers make different variables.
        """
        if self.workers == 1 or not tf.executing_eagerly() or value.dtype == tf.string:
            return value
        self._compare_variable(value)
        return tf.constant(send_array(self, value.numpy(), is_chief=self.is_chief))

    def before_gathering(self, name: str) -> None:
        """Check that all workers read a variable that is divided over all of them."""
        if self.workers == 1 or not tf.executing_eagerly():
            return
        try:
            self.compare_workers("reading a divided variable", {"the variable": name})
        except LostWorkerError as error:
            raise LostWorkerError(
                f"{error}. The variable is divided over all workers, so all have to read it at the"
                " same time: call model.save on all workers, not on the chief alone"
            ) from error

    def compare_plan(self, plan: GraphPlan) -> None:
        """Raise `UserError` if the workers' plans differ: their collectives would not meet."""
        if self.workers == 1:
            return
        operations = describe_plan(plan)

        def describe(at: int) -> str:
            if at == len(operations):
                return "nothing more"
            operation, _, division = operations[at].rpartition(" at ")
            return f"{operation} in {find_user_line(plan.operations[at].op)} (at {division})"

        event = "the first call of a step"
        with self.step_watch.waiting(event):
            self._agreement.compare_lists(event, operations, describe)

    def _compare_variable(self, value: Any) -> None:
        shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", type(value))
        name = getattr(dtype, "name", str(dtype))
        self.compare_workers("making a variable", {"its shape and type": f"{shape} {name}"})

    def _compare_start(self) -> None:
        """Compare versions, replicas and settings of the workers, and use the chief's seed.

        Without a seed on the chief, the workers use a number that the chief has drawn.
        """
        versions = {"Python": platform.python_version().rpartition(".")[0]}
        versions |= {"keras": keras.__version__, "tensorflow": tf.__version__}
        devices = f"{len(self.devices)} {device_type(self.devices[0])}"
        self.compare_workers(
            "the start",
            {
                **versions,
                "the number of replicas": devices,
                "shards (by default, the number of replicas)": self.extended.parts,
                "shard_optimizer": self.extended.divides_state,
                "shard_weights": self.extended.divides_weights,
                "bytes_per_pack": self.bucket_bytes,
            },
        )
        own = [random_seed(), secrets.randbelow(2**31)]
        seeds = self.exchange("the choice of a seed", own)
        chiefs, drawn = seeds[0]
        if any(other != chiefs for other, _ in seeds) or chiefs is None:
            keras.utils.set_random_seed(drawn if chiefs is None else chiefs)


def _check_resolver(resolver: Any) -> None:
    base = tf.distribute.cluster_resolver.ClusterResolver
    if not isinstance(resolver, base):
        raise UserError(
            f"received {type(resolver).__name__} for cluster_resolver: pass a"
            " tf.distribute.cluster_resolver.ClusterResolver, or None for the cluster in TF_CONFIG"
        )
    if resolver.cluster_spec().as_dict() and is_started():
        restart = "restart the kernel, and " if "ipykernel" in sys.modules else ""
        raise UserError(
            "TensorFlow has already started, so it is too late to join the cluster:"
            f" {restart}create the strategy before the first tensor, model or dataset"
        )


_Policy = tf.data.experimental.AutoShardPolicy


def shard_by_data(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset that gives each worker its part of every batch.

    TensorFlow's default, `AUTO`, would give each worker different files if it finds any, so the
    batches would differ from the batches of a single worker. A policy that the user has chosen
    stays.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == _Policy.AUTO:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = _Policy.DATA
        return dataset.with_options(options)
    if policy in (_Policy.OFF, _Policy.FILE):
        warnings.warn(
            f"the dataset has auto_shard_policy={policy.name}, so the batches differ from the"
            " batches of one worker, and the model depends on the number of workers: use"
            " AutoShardPolicy.DATA"
            + (
                ", unless each worker's program already reads its own part of the data"
                if policy == _Policy.OFF
                else ", with which every worker reads all files"
            ),
            stacklevel=2,
        )
    return dataset
