"""`MirroredStrategy`: a drop-in replacement for `tf.distribute.MirroredStrategy`."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..arguments import read_tf_config
from ..errors import UserError
from ..spmd.variables import ExactExtended
from .devices import check_devices, device_type, first_devices, run_operations_on_one_core
from .exact_strategy import ExactStrategy


class MirroredStrategy(ExactStrategy, tf.distribute.MirroredStrategy):
    """Synchronous training on several replicas of one machine.

    A `tf.distribute.MirroredStrategy` that can also split the CPU into replicas: a program for
    several GPUs can be written and tested on a laptop.

    Args:
        devices: Device names as in TensorFlow, one per replica, e.g. `["GPU:0", "GPU:1"]`.
            `None` uses every visible GPU, or the CPU if there is none.
        replicas: Number of replicas, instead of `devices`: the first `replicas` visible GPUs, or
            that many logical CPUs if there is no GPU (at most 8, or one per core of more than 8
            cores). The CPU has to be split before the first tensor, variable or dataset is created.
        shards: Number of parts of each batch, a multiple of the number of replicas. With
            the same `shards`, versions and kind of processor, all results have the same bits on any
            number of replicas that divides `shards`. `None` makes one part per replica, which is
            faster; the results are then equal up to rounding.
        shard_optimizer: Whether the optimizer's state (momentum, Adam's two moments, averages of
            weights, accumulated gradients) is divided over the replicas: each replica has a part
            instead of a copy (ZeRO stage 1). The model and its files are the same.
        shard_weights: Whether the weights and the optimizer's state are divided over the replicas
            (ZeRO stage 3, fully sharded data parallel): a replica gathers weights shortly before it
            computes with them, and then frees them. Rows of a large table are looked up on the
            replica that has them. The model and its files are the same.
        cross_device_ops: A `tf.distribute.CrossDeviceOps` that reduces values over replicas. `None`
            uses `tf.distribute.ReductionToOneDevice` on CPUs, and TensorFlow's default (NCCL) on
            GPUs. Not with `shards`, which kdist adds up in a fixed order.

    Raises:
        UserError: Devices are unknown, repeated or too few; `shards` is no multiple of their
            number; the environment variable `TF_CONFIG` is invalid; the backend of Keras is not
            TensorFlow; the CPU would have to be split after TensorFlow has started; or
            TensorFlow's `HierarchicalCopyAllReduce` would leave out a replica, as it does for odd
            numbers of replicas.

    Examples:
        ```python
        strategy = kdist.MirroredStrategy(replicas=2)
        model = strategy.build(lambda: WideResNet(input_shape=(28, 28, 1), classes=10))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, batch_size=64)  # the global batch: 32 images per replica
        ```
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: Any = None,
        *,
        replicas: int | None = None,
        shards: int | None = None,
        shard_optimizer: bool = False,
        shard_weights: bool = False,
    ) -> None:
        if devices is not None and replicas is not None:
            raise UserError(
                f"received devices={list(devices)} and replicas={replicas}: pass only one of"
                " these arguments"
            )
        read_tf_config(os.environ.get("TF_CONFIG", ""))  # TensorFlow reads it, too
        names = first_devices(replicas) if devices is None else check_devices(devices)
        if shards is not None:
            if cross_device_ops is not None:
                raise UserError(
                    f"received shards={shards} and cross_device_ops, but kdist adds up shards in a"
                    " fixed order: remove cross_device_ops"
                )
            run_operations_on_one_core()
        if cross_device_ops is None and all(device_type(name) == "CPU" for name in names):
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        if (
            isinstance(cross_device_ops, tf.distribute.HierarchicalCopyAllReduce)
            and len(names) > 1
            and len(names) % 2
        ):
            raise UserError(
                "received cross_device_ops=HierarchicalCopyAllReduce, with which TensorFlow leaves"
                f" one of {len(names)} replicas out of every sum: take an even number of replicas,"
                " or ReductionToOneDevice"
            )
        extended = ExactExtended(
            self,
            devices=names,
            cross_device_ops=cross_device_ops,
            shards=shards,
            divides_state=shard_optimizer,
            divides_weights=shard_weights,
        )
        tf.distribute.Strategy.__init__(self, extended)
        self._finish_construction()

    def __repr__(self) -> str:
        replicas = self.num_replicas_in_sync
        count = f"{replicas} replica{'s' * (replicas > 1)}"
        return f"<kdist.MirroredStrategy, {count}: {', '.join(self.devices)}>"
