"""`MirroredStrategy`: the drop-in for `tf.distribute.MirroredStrategy`."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from . import _upstream, exact_step, executions, gradient_norms
from .batch_norm_conversion import convert_batch_norm
from .batch_norms import batch_norms
from .devices import device_type, first_devices, known_devices, short_name
from .errors import UserError
from .global_batch import GlobalBatch
from .model_warnings import (
    warn_of_differing_copies,
    warn_of_gradient,
    warn_of_inexact,
    warn_of_number,
    warn_of_small_batches,
)
from .xla import check_xla, xla_is_automatic


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
        draws: `"by_place"`: dropout, noise and augmentation draw for a sample what one replica
            would draw for it, by its place in the global batch. `"per_replica"`: every replica
            draws for itself, so the model depends on their number.

    Raises:
        UserError: Unknown, repeated or too few devices; another kind of draws; or the CPU would
            have to be split after TensorFlow has started.

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
        draws: Literal["by_place", "per_replica"] = "by_place",
    ) -> None:
        if devices is not None and replicas is not None:
            raise UserError(
                f"received devices={list(devices)} and replicas={replicas}: pass one of the two"
            )
        if draws not in ("by_place", "per_replica"):
            raise UserError(f'draws is "by_place" or "per_replica", received {draws!r}')
        self.draws = draws
        names = first_devices(replicas) if devices is None else known_devices(devices)
        if cross_device_ops is None and all(device_type(name) == "CPU" for name in names):
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        super().__init__(names, cross_device_ops)
        self._global_batches: weakref.WeakKeyDictionary[keras.Model, int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._prepared: weakref.WeakSet[keras.Model] = weakref.WeakSet()
        self._warned: weakref.WeakKeyDictionary[keras.Model, set[str]] = weakref.WeakKeyDictionary()
        self._jitted: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices, one a replica, e.g. `("GPU:0", "GPU:1")`."""
        return tuple(short_name(name) for name in self.extended.worker_devices)

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
        step = _upstream.stock_step(fn) or _upstream.own_step(fn)
        if step is None:
            return super().run(fn, args, kwargs, options)
        model, name = step
        if name == "train_step":
            # Here and once a fit, as `prepare` does not know whether the model will train.
            global_batch = self._global_batches.pop(model, None)
            if global_batch is not None:
                warn_of_small_batches(model, global_batch, self.num_replicas_in_sync)
        if self.num_replicas_in_sync == 1:
            if name == "train_step" and model in gradient_norms.observed:
                fn = gradient_norms.observing_halves(model, fn)
            return super().run(fn, args, kwargs, options)
        attributes = _upstream.ReplicaAttributes([model, *_upstream.flatten_layers(model)])
        step_fn: Any = self._replica_fn(model, name, fn, args, attributes)
        if model in self._jitted:
            step_fn = tf.function(step_fn, jit_compile=True)
        try:
            outputs = super().run(step_fn, args, kwargs, options)
        finally:
            attributes.restore()  # no tensor outlives its graph
        if name == "predict_step":
            return outputs
        logs = keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], outputs)
        if name == "own_step" or logs:
            return logs
        with self.scope():
            return model.get_metrics_result()

    def _replica_fn(
        self, model: keras.Model, name: str, fn: Any, args: Any, attributes: Any
    ) -> Any:
        """What a replica runs in place of `fn`, a step of the model or its prediction."""
        undivided = not any(
            isinstance(leaf, tf.distribute.DistributedValues) for leaf in keras.tree.flatten(args)
        )
        counts = None if undivided else self._static_counts(args)
        named = self._warned.setdefault(model, set())
        seed = _upstream.global_seed(self)
        has_results = name == "own_step" or not _upstream.computes_stock_metrics(model)

        @tf.autograph.experimental.do_not_convert
        def replica_fn(data: Any) -> Any:
            _upstream.use_global_seed(seed)
            data = exact_step.replica_rows(data) if undivided else data
            if _upstream.takes_any_batch(model):
                data = exact_step.of_any_size(data)
            batch = GlobalBatch(
                data,
                counts,
                draws_by_place=self.draws == "by_place",
                is_own_step=name == "own_step",
                has_global_results=has_results and name != "predict_step",
                warn=lambda number: warn_of_number(number, named),
                warn_of_gradient=lambda gradient: warn_of_gradient(gradient, named),
                attributes=attributes,
            )
            attributes.restore()
            with _upstream.activate(batch):
                data = batch.pad_if_empty(data)
                if name == "predict_step":
                    return exact_step.predict_step(fn, batch, data)
                if name == "own_step":
                    return exact_step.own_step(model, fn, batch, data)
                step = exact_step.train_step if name == "train_step" else exact_step.test_step
                return step(model, batch, data)

        return replica_fn

    def _static_counts(self, args: Any) -> list[int] | None:
        """Samples of each replica, where they are known before the step runs."""
        first = next(leaf for leaf in keras.tree.flatten(args) if leaf is not None)
        counts = [part.shape[0] for part in self.experimental_local_results(first)]
        return None if None in counts else counts

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Divide a dataset's batches over replicas, as in `tf.distribute.Strategy`.

        Nothing is to be divided for one replica on a CPU: there it is the dataset itself, whose
        iterators cost a small model half as long. Several get copies of their rows, which no
        step can overwrite a NumPy array through.
        """
        if device_type(self.devices[0]) == "CPU":
            if self.num_replicas_in_sync == 1:
                return dataset
            if isinstance(dataset, tf.data.Dataset):
                dataset = _upstream.with_own_memory(dataset)
        return super().experimental_distribute_dataset(dataset, options)

    @property
    def automatic_xla(self) -> bool:
        """Whether `model.compile(jit_compile="auto")`, Keras's default, may mean XLA."""
        return xla_is_automatic(self.devices)

    def forget(self, model: keras.Model) -> None:
        """What holds for a model as it was compiled: it is about to be compiled anew."""
        self._jitted.discard(model)

    def prepare(self, model: keras.Model, *, global_batch: int | None = None) -> None:
        """Make ready a model that is about to be trained or evaluated under this strategy.

        Called before Keras builds the optimizer and traces its step. An optimizer or metric made
        outside the scope gets its copy on every replica.

        Args:
            model: The model.
            global_batch: Samples in a full batch of all replicas, where that is known.

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
            check_xla(self.devices)
            # Keras would compile around `run`, where XLA fails on several devices.
            model.jit_compile = False
            self._jitted.add(model)
        # What was made outside the scope after all, as in a Sequential built there.
        variables = [*model.variables]
        variables += [variable for metric in model.metrics for variable in metric.variables]
        for optimizer in _upstream.optimizers_of(model):
            _upstream.set_strategy(optimizer, self)
            variables += optimizer.variables
        _upstream.distribute(variables, self)
        self._global_batches[model] = global_batch
        if self.num_replicas_in_sync > 1:
            _upstream.watch_metrics()
            _upstream.watch_losses(model)
            if model not in self._prepared:
                self._prepared.add(model)
                warn_of_inexact(model)

    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """What `model.compile(steps_per_execution="auto")` means for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples of a step, over all replicas; `None` where that is not known.
        """
        on_gpus = device_type(self.devices[0]) == "GPU"
        return executions.steps_per_execution(model, global_batch, on_gpus=on_gpus)

    def epoch_ended(self, model: keras.Model) -> None:
        """Look at what an epoch of training or evaluation has left on the replicas."""
        warn_of_differing_copies(model, self._warned.setdefault(model, set()))

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce a value over replicas, as `tf.distribute.Strategy.reduce` does.

        Keras itself takes the mean of the first batch over replicas to learn its shape. Where that
        has no meaning (parts of unequal size, text), it gets the first replica's part.
        """
        parts = [
            self.experimental_local_results(leaf)
            for leaf in keras.tree.flatten(value)
            if isinstance(leaf, tf.distribute.DistributedValues)
        ]
        if _upstream.is_peeking() and not all(map(_can_be_averaged, parts)):
            return keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], value)
        return super().reduce(reduce_op, value, axis)


def _can_be_averaged(parts: Sequence[Any]) -> bool:
    return all(part.dtype.is_floating and part.shape == parts[0].shape for part in parts)
