"""`ExactStrategy`: the base class of kdist's strategies.

`run` divides a step with `spmd/partition.py`. Patches of Keras and TensorFlow call the methods that
`_upstream/hooks.py` lists, such as `prepare` before a model's first step.
"""

import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import keras
import tensorflow as tf

from .._upstream import all_patches
from .._upstream.device_iterators import share_functions
from .._upstream.hooks import OUTSIDE_OF_SCOPE, StrategyHooks
from .._upstream.iterators import copy_batches
from .._upstream.models import (
    ModelStep,
    distribute,
    is_prediction,
    metrics_of,
    model_of_step,
    optimizers_of,
    strategy_of,
)
from .._upstream.one_device_tracing import converted, one_device, traced_strategy, unconverted
from .._upstream.optimizers import set_strategy
from .._upstream.seeds import global_seed
from ..arguments import check_backend
from ..errors import UserError
from ..layers.fast_batch_norm import normalize_by_batch
from ..spmd.collectives import HOST, Collectives
from ..spmd.divided_datasets import DividedDataset
from ..spmd.explanation import Explanation, warn_once
from ..spmd.functions import traceback_lines
from ..spmd.partition import GlobalRows, Step, has_replica_values, partition, run_eagerly
from ..spmd.plan import GraphPlan
from ..spmd.rematerialization import rematerialize
from ..spmd.replica_count import ReplicaCount, is_recognized, warning_in_step
from .devices import XLA_FOR_DRAWS_ONLY, XlaForDraws, are_gpus, short_name
from .steps_per_execution import steps_per_execution

_PER_WORKER = tf.distribute.InputReplicationMode.PER_WORKER


@dataclasses.dataclass
class ModelState:
    """The state of a model under a strategy, kept until the model is compiled again."""

    is_compared: bool = False
    """Whether the workers have compared the model as it is compiled."""
    prepared: tuple[Any, ...] = ()
    """The parts of the model on which its last preparation depended."""
    is_jitted: bool = False
    """Whether the model's step is compiled with XLA inside `run`."""
    chosen_steps: dict[int | None, int] | None = None
    """Steps per execution by global batch; `None` if the model was not compiled with "auto"."""
    batch_rows: int | None = None
    """The number of samples of a batch, over all replicas; `None` if it is unknown."""
    is_evaluating: bool = False
    """Whether the model is evaluating or predicting, with one step per execution."""


class ExactStrategy(StrategyHooks, tf.distribute.Strategy):
    """Base class of kdist's strategies: they train the same model on any number of replicas.

    A step sees the global batch: it is traced once, as the program of one device, and divided over
    the replicas (`spmd.partition`). Inside the step `num_replicas_in_sync` is 1, and a sum over
    replicas is the value itself. So code for TensorFlow's strategies gives the same results if it
    reads that number inside the step, and does not tell replicas apart.

    A subclass also inherits from a strategy of TensorFlow, and calls `_finish_construction` after
    the constructor of that strategy.
    """

    explained_rows: int | None = None
    """Number of rows of a batch while a step is explained; otherwise `None`."""
    explanation: Explanation
    """The explanation of the step that was explained last."""

    def _finish_construction(self) -> None:
        """Install the patches, and create the caches of model states and compiled steps."""
        check_backend(keras.backend.backend())
        self._states: weakref.WeakKeyDictionary[keras.Model, ModelState] = (
            weakref.WeakKeyDictionary()
        )
        self._warned: set[str] = set()
        self._run_lock = threading.RLock()
        self._compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        all_patches.install()
        self.register()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices, one per replica, e.g. `("GPU:0", "GPU:1")`."""
        return tuple(short_name(name) for name in self.extended.worker_devices)

    @property
    def on_gpus(self) -> bool:
        """Whether all replicas are on GPUs."""
        return are_gpus(self.devices)

    def build(self, model_fn: Callable[[], keras.Model]) -> keras.Model:
        """Make a model in the strategy's scope.

        Args:
            model_fn: A function without arguments that returns a `keras.Model`.

        Returns:
            The model.

        Raises:
            UserError: `model_fn` is no function, or did not return a `keras.Model`.
        """
        if not callable(model_fn) or isinstance(model_fn, keras.Model):
            raise UserError(
                f"build takes a function that makes the model, received {type(model_fn).__name__}:"
                " write strategy.build(lambda: make_model()); to continue with a trained model,"
                " save it, and call kdist.load_model(path, strategy=strategy)"
            )
        with self.scope():
            model = model_fn()
        if not isinstance(model, keras.Model):
            raise UserError(
                f"model_fn returned {type(model).__name__}, expected a keras.Model:"
                " end the function with `return model`"
            )
        return model

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Divide a dataset's batches over replicas, as `tf.distribute.Strategy` does.

        If batches have a single part, as on a single replica without shards, the result is the
        dataset itself. On CPUs each batch is divided as it is read; on GPUs every replica's rows
        are copied to its GPU ahead of the step. Batches with strings, sparse or ragged tensors stay
        in the host's memory: iterators of GPUs do not support them.
        """
        if not isinstance(dataset, tf.data.Dataset):
            raise UserError(
                f"experimental_distribute_dataset received {type(dataset).__name__}, expected a"
                " tf.data.Dataset of global batches, such as"
                " tf.data.Dataset.from_tensor_slices((x, y)).batch(128)"
            )
        if self.extended.parts == 1:
            return dataset
        input_options = options or tf.distribute.InputOptions()
        has_host_data = _check_batches(tf.nest.flatten(dataset.element_spec))
        on_host = has_host_data or not (self.on_gpus and input_options.experimental_fetch_to_device)
        is_one_iterator = input_options.experimental_replication_mode == _PER_WORKER
        if on_host and self.workers == 1 and is_one_iterator:
            devices = self.extended.shard_devices
            return DividedDataset(dataset, [HOST] * len(devices) if self.on_gpus else devices)
        if on_host:
            dataset = copy_batches(dataset)
            if self.on_gpus and options is None:
                options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        return share_functions(super().experimental_distribute_dataset(dataset, options))

    # Steps

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas; 1 inside a step, as a step sees the global batch."""
        if traced_strategy() is self:
            return 1
        count = len(self.extended.worker_devices) * self.workers
        return ReplicaCount(count) if count > 1 else 1

    @unconverted
    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` for the global batch, divided over the replicas.

        In `fn` there is a single device: `fn` sees the rows of all replicas, and
        `num_replicas_in_sync` is 1. The results belong to the global batch; a result that has the
        batch's rows stays divided.

        Args:
            fn: The step.
            args: Positional arguments of the step; parts of batches are `PerReplica` values.
            kwargs: Keyword arguments of the step.
            options: Accepted for compatibility with `tf.distribute.Strategy.run`.
        """
        del options
        return self.run_step(self.as_step(fn), args, kwargs)

    def as_step(self, fn: Callable[..., Any]) -> Step:
        """Return a function as the `Step` that `run` divides.

        XLA compiles the step of a model as the model's `compile` settings say.
        """
        model = model_of_step(fn)
        if model is None:
            return Step(fn)
        global_seed(self)  # in the thread that traces the step
        state = self.model_state(model)
        return Step(
            fn.fn if isinstance(fn, ModelStep) else fn,
            splits=True,
            keeps_rows=is_prediction(fn),
            jit_compile=state.is_jitted,
            draws_by_xla=model.jit_compile is XLA_FOR_DRAWS_ONLY,
            batch_rows=state.batch_rows,
        )

    @unconverted
    def run_step(self, step: Step, args: Any, kwargs: Any = None) -> Any:
        """Run a step, as `run` does."""
        kwargs = kwargs or {}
        self.is_used = True
        if traced_strategy() is self:  # a step within a step
            return step.fn(*args, **kwargs)
        if tf.executing_eagerly():
            is_function = isinstance(step.fn, tf.types.experimental.PolymorphicFunction)
            if is_function and not step.splits:  # not the step of a model that runs eagerly
                with self._run_lock:  # the collectives of two threads must not mix
                    return self._compiled_step(step.fn)(args, kwargs)
            return run_eagerly(self, step.fn, args, kwargs)
        if self.extended.parts == 1:
            args, kwargs = tf.nest.map_structure(self._take_single_part, (args, kwargs))
            with one_device(self):
                return converted(step.fn)(*args, **kwargs)
        result, explanation = partition(self, step, args, kwargs)
        if self.explained_rows is None:
            warn_once(explanation.warning(), self._warned)
        else:
            self.explanation = explanation
        return result

    def _take_single_part(self, value: Any) -> Any:
        return self.experimental_local_results(value)[0] if has_replica_values(value) else value

    def _compiled_step(self, fn: Any) -> Any:
        if fn not in self._compiled:
            weak = weakref.ref(fn)

            def step(args: Any, kwargs: Any) -> Any:
                return self.run_step(Step(cast(Any, weak())), args, kwargs)

            self._compiled[fn] = tf.function(step, autograph=False, reduce_retracing=True)
        return self._compiled[fn]

    def collectives(self) -> Collectives:
        """Return the collectives of the replicas."""
        collectives: Collectives = self.extended.collectives()
        return collectives

    def chiefs_value(self, value: tf.Tensor) -> tf.Tensor:
        """Return the chief's initial value of a divided variable; one worker has its own."""
        return value

    def before_gathering(self, name: str) -> None:
        """Called before the value of a divided variable is gathered."""

    def compare_plan(self, plan: GraphPlan) -> None:
        """Compare the workers' plans of a step before its program is written."""

    @unconverted
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce a step's result along an axis: the result already belongs to the global batch.

        Rows that are divided over replicas are gathered first. If `axis` is `None`, a step's result
        stays as it is; only a `PerReplica` value that the user made is reduced over the replicas,
        as in TensorFlow.
        """
        name = str(getattr(reduce_op, "value", reduce_op)).upper()
        if name not in ("SUM", "MEAN"):
            raise UserError(f"reduce_op has to be 'SUM' or 'MEAN', received {reduce_op!r}")
        reduce = functools.partial(_reduce_value, self, name, axis)
        return tf.nest.map_structure(reduce, value)

    @unconverted
    def gather(self, value: Any, axis: int) -> Any:
        """Return all rows of a batch or of a step's result; a whole tensor stays as it is."""

        def gathered(part: Any) -> Any:
            if isinstance(part, tf.distribute.DistributedValues):
                return self.collectives().gather(self.experimental_local_results(part), axis)[0]
            return part

        return tf.nest.map_structure(gathered, value)

    # Called by the patches: `StrategyHooks`.

    def check_constant(self, numbers: Any, constant: Any) -> None:
        if is_recognized(numbers):
            warn_once(warning_in_step(traceback_lines(constant.op)), self._warned)

    def batch_norm(self, layer: Any, inputs: Any) -> Any:
        return normalize_by_batch(layer, inputs)

    def rematerialize(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return rematerialize(fn, keeps_weights=self.extended.divides_weights)

    def equalize_copies(self, handles: Sequence[Any]) -> None:
        # An error here, as after memory has run out, must not replace the error of the step.
        with contextlib.suppress(tf.errors.OpError):
            self.extended.copy_first(handles)

    def automatic_xla(self, is_supported: bool) -> bool | XlaForDraws:
        if not is_supported or not self.on_gpus:
            return False
        return XLA_FOR_DRAWS_ONLY if self.extended.parts > 1 else True

    def model_state(self, model: keras.Model) -> ModelState:
        return self._states.setdefault(model, ModelState())

    def reset(self, model: keras.Model) -> None:
        self._states[model] = ModelState()

    def prepare(self, model: keras.Model, global_batch: int | None = None) -> None:
        if strategy_of(model) is not self:
            raise UserError(f"the model {model.name!r} {OUTSIDE_OF_SCOPE}")
        state = self.model_state(model)
        state.batch_rows = global_batch
        if model.jit_compile and self.extended.parts > 1:
            # Keras would compile around `run`, where XLA fails on several devices.
            model.jit_compile = False
            state.is_jitted = True
        # Variables may be created outside the scope, as in a Sequential that is built later.
        variables = [*model.variables]
        variables += [variable for metric in metrics_of(model) for variable in metric.variables]
        for optimizer in optimizers_of(model):
            set_strategy(optimizer, self)
            variables += optimizer.variables
        distribute(variables, self)
        # The seed generator is created before the step: TensorFlow traces a step that creates a
        # variable twice.
        global_seed(self)
        state.prepared = _preparation_inputs(model)

    def is_prepared(self, model: keras.Model) -> bool:
        return self.model_state(model).prepared == _preparation_inputs(model)

    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        return steps_per_execution(model, global_batch, on_gpus=self.on_gpus)


def _preparation_inputs(model: keras.Model) -> tuple[Any, ...]:
    """Return the parts of a model that its preparation depends on.

    Keras makes a new step function to trace the step again: the model has to be prepared again.
    """
    steps = (model.train_function, model.test_function)
    return (*steps, model.jit_compile, len(model.variables), *optimizers_of(model))


def _check_batches(specs: Sequence[Any]) -> bool:
    """Reject scalars; return whether batches of these specs stay in the host's memory."""
    for spec in specs:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0:
            raise UserError(
                "received a dataset with scalars, which cannot be divided over replicas: call"
                " dataset.batch(n) if its elements are single samples; pass a number that belongs"
                " to no sample as a separate argument of the step"
            )
    composite = (tf.SparseTensorSpec, tf.RaggedTensorSpec)
    return any(
        isinstance(spec, composite) or getattr(spec, "dtype", None) == tf.string for spec in specs
    )


def _reduce_value(strategy: Any, reduce_op: str, axis: Any, value: Any) -> Any:
    if not has_replica_values(value):
        whole = value
    else:
        parts: Sequence[Any] = strategy.experimental_local_results(value)
        if not isinstance(value, GlobalRows) and axis is None:
            return tf.distribute.Strategy.reduce(strategy, reduce_op, value, axis)
        whole = strategy.collectives().gather(parts, 0)[0]
    if axis is None:
        return whole
    return (tf.reduce_sum if reduce_op == "SUM" else tf.reduce_mean)(whole, axis)
