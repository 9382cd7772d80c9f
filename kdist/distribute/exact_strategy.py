"""`ExactStrategy`: what all strategies of kdist do beyond TensorFlow's."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from .._upstream import patches
from .._upstream.device_iterators import share_functions
from .._upstream.hooks import StrategyHooks
from .._upstream.internals import (
    custom_step,
    distribute,
    global_seed,
    metrics_of,
    optimizers_of,
    set_strategy,
    stock_step,
    strategy_of,
)
from .._upstream.iterators import copy_batches
from ..arguments import check_backend
from ..batch_norm.convert import batch_norms, convert_batch_norm
from ..errors import UserError
from ..performance.steps_per_execution import steps_per_execution
from ..spmd.batches import DividedDataset
from ..spmd.collectives import HOST
from ..spmd.strategy import GlobalViewStrategy, Step
from .devices import DRAWS_ALONE, Draws, are_gpus, short_name
from .made_outside import remake
from .model_state import ModelState

_PER_WORKER = tf.distribute.InputReplicationMode.PER_WORKER


class ExactStrategy(StrategyHooks, GlobalViewStrategy):
    """Base class of strategies whose models do not depend on the number of replicas.

    A subclass also inherits from a strategy of TensorFlow, and calls `_start` once that is made.
    """

    workers = 1
    worker = 0

    def _start(self) -> None:
        """Install the patches, and set what the models of this strategy depend on."""
        check_backend(keras.backend.backend())
        self._states: weakref.WeakKeyDictionary[keras.Model, ModelState] = (
            weakref.WeakKeyDictionary()
        )
        self.start_global_view()
        patches.install()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices, one per replica, e.g. `("GPU:0", "GPU:1")`."""
        return tuple(short_name(name) for name in self.extended.worker_devices)

    @property
    def on_gpus(self) -> bool:
        """Whether all replicas are on GPUs."""
        return are_gpus(self.devices)

    def build(self, model_fn: Callable[[], keras.Model] | keras.Model) -> keras.Model:
        """Make a model in the strategy's scope, with synchronized batch norms.

        Args:
            model_fn: A function without arguments that returns a `keras.Model`; or a model that was
                made elsewhere, which is made anew with its weights, its optimizer's state and its
                compile settings, and stays as it is.

        Returns:
            The model. Its `keras.layers.BatchNormalization` layers are computed by the faster
            kernels of `kdist.layers.SyncBatchNormalization`; files of the model open without kdist.

        Raises:
            UserError: `model_fn` is neither, did not return a `keras.Model`, or is a model that
                does not describe itself (`get_config`).
        """
        if isinstance(model_fn, keras.Model):
            model = remake(model_fn, self)
        elif callable(model_fn):
            with self.scope():
                model = model_fn()
        else:
            raise UserError(
                "build takes a function that makes the model, or a model, received"
                f" {type(model_fn).__name__}: write strategy.build(lambda: make_model())"
            )
        if not isinstance(model, keras.Model):
            raise UserError(
                f"model_fn returned {type(model).__name__}, expected a keras.Model:"
                " end the function with `return model`"
            )
        if batch_norms(model):
            convert_batch_norm(model, to="synchronized")
        return model

    def as_step(self, fn: Callable[..., Any]) -> Step:
        """Return how `run` divides a function; a model's step as its model was compiled."""
        own = stock_step(fn) or custom_step(fn)
        if own is None:
            return Step(fn)
        model, name = own
        global_seed(self)  # this thread's, which traces the step
        return Step(
            fn,
            splits=True,
            keeps_rows=name == "predict_step",
            jit_compile=self.model_state(model).is_jitted,
            draws_by_xla=model.jit_compile is DRAWS_ALONE,
        )

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Divide a dataset's batches over replicas, as `tf.distribute.Strategy` does.

        For one replica it returns the dataset itself, as nothing has to be divided. On CPUs each
        batch is divided as it is read; on GPUs every replica's rows are copied to its GPU ahead of
        the step. Batches with strings, sparse or ragged tensors stay in the host's memory, as no
        iterator of a GPU has them.
        """
        if self.extended.parts == 1:
            return dataset
        if not isinstance(dataset, tf.data.Dataset):
            return super().experimental_distribute_dataset(dataset, options)
        asked = options or tf.distribute.InputOptions()
        has_host_data = _has_host_data(tf.nest.flatten(dataset.element_spec))
        on_host = has_host_data or not (self.on_gpus and asked.experimental_fetch_to_device)
        is_one_iterator = asked.experimental_replication_mode == _PER_WORKER
        if on_host and self.workers == 1 and is_one_iterator:
            devices = self.extended.shard_devices
            return DividedDataset(dataset, [HOST] * len(devices) if self.on_gpus else devices)
        if on_host:
            dataset = copy_batches(dataset)
            if self.on_gpus and options is None:
                options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        return share_functions(super().experimental_distribute_dataset(dataset, options))

    # What the patches in `_upstream` call, from here on.

    def automatic_xla(self, is_supported: bool) -> bool | Draws:
        """Return what `jit_compile="auto"`, Keras's default, is: true on one GPU.

        On several GPUs XLA compiles the draws alone: it draws other numbers than TensorFlow.

        Args:
            is_supported: Whether all layers of the model support XLA.
        """
        if not is_supported or not self.on_gpus:
            return False
        return DRAWS_ALONE if self.extended.parts > 1 else True

    def model_state(self, model: keras.Model) -> ModelState:
        """Return what the strategy stores for a model."""
        return self._states.setdefault(model, ModelState())

    def reset(self, model: keras.Model) -> None:
        """Reset what is stored for a model that is about to be compiled again."""
        self.model_state(model).reset()

    def prepare(self, model: keras.Model) -> None:
        """Prepare a model that is about to be trained or evaluated under this strategy.

        Called before Keras builds the optimizer and traces its step. An optimizer or metric made
        outside the scope gets a copy on every replica.

        Args:
            model: The model, the same on all workers.

        Raises:
            UserError: It differs between workers, or was made outside the strategy's scope.
        """
        if strategy_of(model) is not self:
            raise UserError(
                f"the model {model.name!r} was made outside the strategy's scope, so its variables"
                " are on one device only: make it in strategy.build(lambda: ...), or inside"
                " `with strategy.scope():`"
            )
        state = self.model_state(model)
        if model.jit_compile and self.extended.parts > 1:
            # Keras would compile around `run`, where XLA fails on several devices.
            model.jit_compile = False
            state.is_jitted = True
        # Some may have been made outside the scope, as in a Sequential that was built there.
        variables = [*model.variables]
        variables += [variable for metric in metrics_of(model) for variable in metric.variables]
        for optimizer in optimizers_of(model):
            set_strategy(optimizer, self)
            variables += optimizer.variables
        distribute(variables, self)
        # Made before the step that uses it: TensorFlow traces a step that makes one twice.
        global_seed(self)
        state.prepared = _parts(model)

    def is_prepared(self, model: keras.Model) -> bool:
        """Return whether a model is as it was when it was prepared last, with the same steps."""
        return self.model_state(model).prepared == _parts(model)

    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """Choose the value of `steps_per_execution="auto"` for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples per step, over all replicas; `None` if unknown.
        """
        return steps_per_execution(model, global_batch, on_gpus=self.on_gpus)

    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` if the workers differ in any value, or are doing different things.

        Args:
            event: What this worker is doing, such as `fit`.
            values: By name, anything that JSON can hold.
        """

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing, such as `fit`.
            value: Anything that JSON can hold.
        """
        del event
        return [value]


def _parts(model: keras.Model) -> tuple[Any, ...]:
    """Return what a model's preparation depends on; a step that is traced anew is another one."""
    steps = (model.train_function, model.test_function)
    return (*steps, model.jit_compile, len(model.variables), *optimizers_of(model))


def _has_host_data(specs: Sequence[Any]) -> bool:
    """Whether batches of these specs have parts that stay in the host's memory."""
    for spec in specs:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0:
            raise UserError(
                "received a dataset whose elements have a scalar, expected rows that can be"
                " divided: call `batch`, or give what is one number for the whole batch to the"
                " step as another argument"
            )
    composite = (tf.SparseTensorSpec, tf.RaggedTensorSpec)
    return any(
        isinstance(spec, composite) or getattr(spec, "dtype", None) == tf.string for spec in specs
    )
