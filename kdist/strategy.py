"""`MirroredStrategy`: the drop-in for `tf.distribute.MirroredStrategy`."""

import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from . import _upstream, exact_step
from .arguments import as_integer
from .batch_norm_conversion import convert_batch_norm
from .batch_norms import batch_norms, unsynchronized_batch_norms
from .errors import UserError

# The number of logical CPUs is fixed once TensorFlow has started; idle ones cost nothing, so
# enough are made for a later strategy of the same process that wants more replicas than the first.
_LOGICAL_CPUS = 8


class MirroredStrategy(tf.distribute.MirroredStrategy):
    """Synchronous training on several replicas of one machine.

    A `tf.distribute.MirroredStrategy` that can also split the CPU into replicas, so that what
    will run on several GPUs can be written and tested on a laptop.

    Args:
        devices: Device names as in TensorFlow, one a replica, e.g. `["GPU:0", "GPU:1"]`.
            `None` takes every visible GPU, or the CPU where there is none.
        replicas: Number of replicas, instead of `devices`: the first `replicas` visible GPUs, or
            as many logical CPUs where there is no GPU. The CPU is split if it is not yet, which
            has to come before the first tensor, variable or dataset.
        cross_device_ops: How values are reduced over replicas, a `tf.distribute.CrossDeviceOps`.
            `None` takes `tf.distribute.ReductionToOneDevice` on CPUs, where TensorFlow's
            collectives fail in a second strategy of the process, and TensorFlow's choice (NCCL)
            on GPUs.

    Raises:
        UserError: Unknown, repeated or too few devices; or the CPU would have to be split after
            TensorFlow has started.

    Example:
        ```python
        strategy = kdist.MirroredStrategy(replicas=2)
        model = strategy.build(lambda: WideResNet(input_shape=(28, 28, 1), classes=10))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, batch_size=64)  # the global batch: 32 images a replica
        ```
    """

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
        names = _first_devices(replicas) if devices is None else _known_devices(devices)
        if cross_device_ops is None and all(_device_type(name) == "CPU" for name in names):
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        super().__init__(names, cross_device_ops)
        self._prepared: weakref.WeakSet[keras.Model] = weakref.WeakSet()
        self._jitted: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices, one a replica, e.g. `("GPU:0", "GPU:1")`."""
        return tuple(_short_name(name) for name in self.extended.worker_devices)

    def build(self, model_fn: Callable[[], keras.Model]) -> keras.Model:
        """Make a model in the strategy's scope, its batch norms synchronized.

        Args:
            model_fn: Takes nothing and returns a `keras.Model`.

        Returns:
            The model, every `keras.layers.BatchNormalization` of which has become a
            `kdist.layers.SyncBatchNormalization`, over the global batch. For a file that opens
            without kdist, save after `kdist.convert_batch_norm(model, to="stock")`.

        Raises:
            UserError: `model_fn` is not callable or did not return a `keras.Model`.
        """
        if isinstance(model_fn, keras.Model) or not callable(model_fn):
            raise UserError(
                f"build takes a function that makes the model, received {type(model_fn).__name__}:"
                " write strategy.build(lambda: make_model()), so that the model's variables are"
                " made in the strategy's scope"
            )
        with self.scope():
            model = model_fn()
        if not isinstance(model, keras.Model):
            raise UserError(
                f"model_fn returned {type(model).__name__}, expected a keras.Model:"
                " end the function with `return model`"
            )
        if batch_norms(model):
            convert_batch_norm(model, to="synchronized")
        return model

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` on every replica, as `tf.distribute.Strategy.run` does.

        Keras's own train and test steps are replaced by ones that give, on several replicas, what
        one replica gives on the same global batch.
        """
        stock = _upstream.stock_step(fn) if self.num_replicas_in_sync > 1 else None
        if stock is None:
            return super().run(fn, args, kwargs, options)
        model, name = stock
        undivided = not any(
            isinstance(leaf, tf.distribute.DistributedValues) for leaf in keras.tree.flatten(args)
        )

        @tf.autograph.experimental.do_not_convert
        def replica_fn(data: Any) -> Any:
            data = exact_step.replica_rows(data) if undivided else data
            if name == "predict_step":
                return fn(data)
            step = exact_step.train_step if name == "train_step" else exact_step.test_step
            return step(model, data)

        step_fn = tf.function(replica_fn, jit_compile=True) if model in self._jitted else replica_fn
        outputs = super().run(step_fn, args, kwargs, options)
        if name == "predict_step":
            return outputs
        with self.scope():
            logs = model.get_metrics_result()
            own = keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], outputs)
        return {**own, **logs}

    #: Tells Keras's random layers to draw differently on every replica.
    draws_differ = True

    def prepare(self, model: keras.Model) -> None:
        """Make ready a model that is about to be trained or evaluated under this strategy.

        Called before Keras builds the optimizer and traces its step. An optimizer or metric made
        outside the scope gets its copy on every replica.

        Raises:
            UserError: The model was made outside the strategy's scope, or asks for XLA where it
                cannot work.
        """
        if _upstream.scope_of(model) is not self:
            raise UserError(
                f"the model {model.name!r} was made outside the strategy's scope, so its variables"
                " are on one device only: make it in strategy.build(lambda: ...), or inside"
                " `with strategy.scope():`"
            )
        if model.jit_compile and self.num_replicas_in_sync > 1:
            if not all(_device_type(name) == "GPU" for name in self.devices):
                raise UserError(
                    f"received jit_compile=True, but XLA cannot compile a step that spans the"
                    f" {len(self.devices)} logical CPUs of this strategy: compile the model with"
                    ' jit_compile="auto" or False, or train on one replica'
                )
            # Keras would compile around `run`, where XLA fails on several devices.
            model.jit_compile = False
            self._jitted.add(model)
        # What was made outside the scope after all, as in a Sequential built there.
        variables = [*model.variables]
        variables += [variable for metric in model.metrics for variable in metric.variables]
        if model.optimizer is not None:
            _upstream.set_strategy(model.optimizer, self)
            variables += model.optimizer.variables
        _upstream.distribute(variables, self)
        if self.num_replicas_in_sync > 1 and model not in self._prepared:
            self._prepared.add(model)
            _warn_of_inexact(model)

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce a value over replicas, as `tf.distribute.Strategy.reduce` does.

        Keras takes the mean of the first batch over replicas to learn its shape. Where that has
        no meaning (parts of unequal size, text), the first replica's part is returned.
        """
        parts = [
            self.experimental_local_results(leaf)
            for leaf in keras.tree.flatten(value)
            if isinstance(leaf, tf.distribute.DistributedValues)
        ]
        is_mean = reduce_op in ("MEAN", "mean", tf.distribute.ReduceOp.MEAN) and axis is None
        if is_mean and not all(map(_can_be_averaged, parts)):
            return keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], value)
        return super().reduce(reduce_op, value, axis)


def _warn_of_inexact(model: keras.Model) -> None:
    """Say what in this model keeps it from being the same on any number of replicas."""
    plain = unsynchronized_batch_norms(model)
    if plain:
        warnings.warn(
            f"{', '.join(layer.name for layer in plain)}: batch normalization over the samples of"
            " each replica alone, so the model depends on the number of replicas. Make it by"
            " strategy.build(lambda: ...), or mend it by kdist.convert_batch_norm(model,"
            ' to="synchronized"). The moving statistics are averaged over replicas.',
            stacklevel=2,
        )
    own = _upstream.own_steps(model)
    if own:
        warnings.warn(
            f"{type(model).__name__} has its own {' and '.join(own)}, which runs as it is: kdist"
            " does not guarantee there that uneven batches, clipping, accumulation, loss"
            " reductions and logged metrics come out as on one replica.",
            stacklevel=2,
        )


def _can_be_averaged(parts: Sequence[Any]) -> bool:
    return all(part.dtype.is_floating and part.shape == parts[0].shape for part in parts)


def _first_devices(replicas: int | None) -> list[str]:
    """Names of the devices that `replicas=` stands for."""
    if replicas is not None and as_integer(replicas) is None:
        raise UserError(f"replicas is a whole number, received {replicas!r}")
    if replicas is not None and replicas < 1:
        raise UserError(f"replicas is at least 1, received {replicas}")
    gpus = len(tf.config.get_visible_devices("GPU"))
    if not gpus:
        _split_cpu(replicas)
        return [f"CPU:{index}" for index in range(replicas or 1)]
    if replicas is not None and replicas > gpus:
        raise UserError(
            f"received replicas={replicas}, but {gpus} GPU{'s are' if gpus > 1 else ' is'} visible:"
            f" pass replicas={gpus} or fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1) to split"
            " the CPU instead"
        )
    return [f"GPU:{index}" for index in range(replicas or gpus)]


def _split_cpu(replicas: int | None) -> None:
    """Make at least `replicas` logical CPUs; `None` leaves the CPU whole."""
    cpu = tf.config.get_visible_devices("CPU")[0]
    split = tf.config.get_logical_device_configuration(cpu)
    configured = len(split) if split else 1
    if replicas is None or (split and replicas <= configured):
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * max(replicas, _LOGICAL_CPUS)
        )
    except RuntimeError as error:
        if replicas == 1:
            return
        raise UserError(
            f"received replicas={replicas}, but TensorFlow has already started with {configured}"
            f" logical CPU{'s' * (configured > 1)}, and their number is then fixed: move the line"
            f" {_calling_line()} up, above the first tensor, model or dataset of the program"
        ) from error


def _calling_line() -> str:
    """Where the user's program made the strategy."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename != __file__ and not frame.filename.endswith("distribute_lib.py"):
            return (
                f"`{frame.line or 'kdist.MirroredStrategy(...)'}` ({frame.filename}:{frame.lineno})"
            )
    return "`kdist.MirroredStrategy(...)`"


def _known_devices(devices: Sequence[str]) -> list[str]:
    """The names in `devices`, checked."""
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise UserError(f"devices is a list of names such as ['GPU:0'], received {devices!r}")
    if not all(isinstance(name, str) for name in devices):
        raise UserError(f"devices is a list of names such as ['GPU:0'], received {devices!r}")
    if not devices:
        raise UserError(
            "received an empty list of devices: name at least one, or pass None for all"
        )
    known = [_short_name(device.name) for device in tf.config.list_logical_devices()]
    known = [name for name in known if _device_type(name) in ("CPU", "GPU")]
    names = [_short_name(name) for name in devices]
    unknown = [name for name, short in zip(devices, names, strict=True) if short not in known]
    if unknown:
        raise UserError(
            f"unknown device {', '.join(unknown)}: there are {', '.join(known)}"
            " (replicas=N splits the CPU)"
        )
    if len(set(names)) < len(names):
        raise UserError(f"received devices={list(devices)}: each device holds one replica only")
    return list(names)


def _short_name(device: str) -> str:
    """`GPU:0` for `/gpu:0`, `gpu:0` or `/job:localhost/replica:0/task:0/device:GPU:0`."""
    kind, _, index = device.rpartition(":")
    return f"{kind.rpartition(':')[2].rpartition('/')[2].upper()}:{index}"


def _device_type(device: str) -> str:
    return device.partition(":")[0]
