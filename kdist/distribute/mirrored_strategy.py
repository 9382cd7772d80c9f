"""`MirroredStrategy`: a drop-in replacement for `tf.distribute.MirroredStrategy`."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..errors import UserError
from ..spmd.strategy import GlobalViewExtended, GlobalViewStrategy
from .cluster import read_tf_config
from .devices import device_type, first_devices, known_devices
from .exact_strategy import ExactStrategy
from .gradient_norms import measure_halves, measure_parts
from .traced_step import observed_step


class MirroredStrategy(ExactStrategy, GlobalViewStrategy, tf.distribute.MirroredStrategy):
    """Synchronous training on several replicas of one machine.

    A `tf.distribute.MirroredStrategy` that can also split the CPU into replicas, so that what
    will run on several GPUs can be written and tested on a laptop.

    Args:
        devices: Device names as in TensorFlow, one per replica, e.g. `["GPU:0", "GPU:1"]`.
            `None` uses every visible GPU, or the CPU if there is none.
        replicas: Number of replicas, instead of `devices`: the first `replicas` visible GPUs, or
            that many logical CPUs if there is no GPU, at most 8 or one per core. The CPU has to be
            split before the first tensor, variable or dataset is created.
        cross_device_ops: How values are reduced over replicas, a `tf.distribute.CrossDeviceOps`.
            `None` uses `tf.distribute.ReductionToOneDevice` on CPUs, where TensorFlow's
            collectives fail in a second strategy of the process, and TensorFlow's default (NCCL)
            on GPUs.

    Raises:
        UserError: Devices are unknown, repeated or too few; the environment variable `TF_CONFIG`
            is invalid; Keras uses a backend other than TensorFlow; or the CPU would
            have to be split after TensorFlow has started.

    Example:
        ```python
        strategy = kdist.MirroredStrategy(replicas=2)
        model = strategy.build(lambda: WideResNet(input_shape=(28, 28, 1), classes=10))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, batch_size=64)  # the global batch: 32 images per replica
        ```
    """

    sees_global_batch = True

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: Any = None,
        *,
        replicas: int | None = None,
    ) -> None:
        if devices is not None and replicas is not None:
            raise UserError(
                f"received devices={list(devices)} and replicas={replicas}: pass one of the two"
            )
        read_tf_config(os.environ.get("TF_CONFIG", ""))  # which TensorFlow reads, too
        names = first_devices(replicas) if devices is None else known_devices(devices)
        if cross_device_ops is None and all(device_type(name) == "CPU" for name in names):
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        extended = GlobalViewExtended(self, devices=names, cross_device_ops=cross_device_ops)
        tf.distribute.Strategy.__init__(self, extended)
        self.start_global_view()
        self._start()

    def __repr__(self) -> str:
        replicas = self.num_replicas_in_sync
        count = f"{replicas} replica{'s' * (replicas > 1)}"
        return f"<kdist.MirroredStrategy, {count}: {', '.join(self.devices)}>"

    @_upstream.unconverted
    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` for the global batch, divided over the replicas.

        In `fn` there is one device: it sees the rows of all replicas, and `num_replicas_in_sync` is
        1. Its results are those of the global batch; one that has the batch's rows stays divided.

        Args:
            fn: The step.
            args: Its arguments; parts of batches are `PerReplica` values.
            kwargs: The same, by name.
            options: Accepted for compatibility with `tf.distribute.Strategy.run`.
        """
        del options
        step = _upstream.stock_step(fn) or _upstream.custom_step(fn)
        if step is None:
            return self.run_step(fn, args, kwargs)
        model, name = step
        state = self.model_state(model)
        if fn.__name__ == "train_step" and state.telemetry is not None:
            fn = observed_step(state.telemetry, fn)
        if name == "train_step" and state.gradient_norms is not None:
            measure = measure_parts if len(self.devices) > 1 else measure_halves
            fn = measure(state.gradient_norms, model, fn)
        fn = _upstream.with_global_seed(_upstream.global_seed(self), fn)
        keeps_rows = name == "predict_step"
        return self.run_step(
            fn, args, kwargs, splits=True, keeps_rows=keeps_rows, jit_compile=state.is_jitted
        )

    @_upstream.unconverted
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce the result of a step: it is that of the global batch already.

        Rows of a batch that are divided over replicas are put together, and then reduced along
        `axis` if that is a number.
        """
        return self.reduce_global(reduce_op, value, axis)
