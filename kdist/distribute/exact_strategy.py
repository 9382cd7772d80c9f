"""`ExactStrategy`: what all strategies of kdist do beyond TensorFlow's."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..arguments import check_backend
from ..batch_norm.convert import convert_batch_norm
from ..batch_norm.find import batch_norms
from ..errors import UserError
from ..ops.fused_activation import fused_activation, fusible
from ..ops.fused_dropout import fused_dropout_of
from ..performance import steps_per_execution
from .devices import device_type, short_name
from .gradient_norms import measure_halves, measure_parts
from .gradient_transfer import GradientTransfer
from .made_outside import remake
from .model_state import ModelState
from .model_warnings import warn_of_differing_copies, warn_of_inexact, warn_of_small_batches
from .replica_step import replica_step
from .traced_step import observed_step
from .xla import check_xla, xla_is_automatic


class ExactStrategy(_upstream.StrategyHooks, tf.distribute.Strategy):
    """Base class of strategies whose models do not depend on the number of replicas.

    A subclass also inherits from a strategy of TensorFlow, and calls `_start` once that is made.
    """

    workers = 1
    worker = 0
    # Whether a step returns the results of metrics; otherwise they are read after it.
    sums_metrics_in_step = False
    gradient_transfer = GradientTransfer()

    def _start(self) -> None:
        """Install the patches, and set what the models of this strategy depend on."""
        check_backend(keras.backend.backend())
        self._states: weakref.WeakKeyDictionary[keras.Model, ModelState] = (
            weakref.WeakKeyDictionary()
        )
        _upstream.patches.install()
        if not self.sees_global_batch:
            _upstream.patches.install_for_workers()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices, one per replica, e.g. `("GPU:0", "GPU:1")`."""
        return tuple(short_name(name) for name in self.extended.worker_devices)

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

    @_upstream.unconverted
    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` on every replica, as `tf.distribute.Strategy.run` does.

        Keras's own train and test steps are replaced by steps that give the same result on several
        replicas as on one with the same global batch.
        """
        step = _upstream.stock_step(fn) or _upstream.custom_step(fn)
        if self.sees_global_batch:
            return self._run_global(fn, step, args, kwargs)
        if step is None:
            return super().run(fn, args, kwargs, options)
        model, name = step
        state = self.model_state(model)
        if name == "train_step" and state.global_batch is not None:
            # Here, once per fit: `prepare` does not know whether the model will be trained.
            warn_of_small_batches(model, state.global_batch, self.num_replicas_in_sync)
            state.global_batch = None
        if self.num_replicas_in_sync == 1:
            is_training = fn.__name__ == "train_step"
            if is_training and state.telemetry is not None:
                fn = observed_step(state.telemetry, fn)
            if name == "train_step" and state.gradient_norms is not None:
                fn = measure_halves(state.gradient_norms, model, fn)
            fn = _upstream.with_global_seed(_upstream.global_seed(self), fn)
            return super().run(fn, args, kwargs, options)
        attributes = _upstream.ReplicaAttributes([model, *_upstream.flatten_layers(model)])
        step_fn: Any = replica_step(self, model, name, fn, args, attributes)
        if state.is_jitted:
            step_fn = tf.function(step_fn, jit_compile=True)
        try:
            outputs = super().run(step_fn, args, kwargs, options)
        finally:
            attributes.restore()  # so that no tensor outlives its graph
        if name == "predict_step":
            return outputs
        logs = keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], outputs)
        if name == "custom_step" or logs:
            return logs
        with self.scope():
            return model.get_metrics_result()

    def _run_global(self, fn: Callable[..., Any], step: Any, args: Any, kwargs: Any) -> Any:
        """Run a step as the program of one device that sees the global batch."""
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

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Divide a dataset's batches over replicas, as `tf.distribute.Strategy` does.

        For one replica on a CPU it returns the dataset itself, as nothing has to be divided and its
        iterators take half as long for a small model. Several replicas on CPUs get copies of their
        rows, so that no step can overwrite a NumPy array that backs the dataset.
        """
        if device_type(self.devices[0]) == "CPU":
            if self.num_replicas_in_sync == 1:
                return dataset
            if isinstance(dataset, tf.data.Dataset):
                dataset = _upstream.copy_batches(dataset)
        return super().experimental_distribute_dataset(dataset, options)

    @property
    def automatic_xla(self) -> bool:
        """Whether `model.compile(jit_compile="auto")`, Keras's default, may turn on XLA."""
        return xla_is_automatic(self.devices)

    def model_state(self, model: keras.Model) -> ModelState:
        """Return what the strategy stores for a model."""
        return self._states.setdefault(model, ModelState())

    def reset(self, model: keras.Model) -> None:
        """Reset what is stored for a model that is about to be compiled again."""
        self.model_state(model).reset()

    def auto_steps(self, model: keras.Model) -> _upstream.AutoSteps:
        """Return what `compile(steps_per_execution="auto")` has chosen for a model."""
        return self.model_state(model).auto_steps

    def fused_dropout(
        self, inputs: Any, rate: Any, noise_shape: Any
    ) -> Callable[[Any, Any], Any] | None:
        """Return a dropout that takes one pass over the inputs; `None` to use Keras's own."""
        return fused_dropout_of(inputs, rate, noise_shape)

    def fused_activation(
        self, function: Callable[..., Any], inputs: Any, *arguments: Any, **options: Any
    ) -> Any:
        """Return an activation computed in one pass over the inputs; `None` to use Keras's own."""
        if not fusible(inputs, *arguments, *options.values()):
            return None
        return fused_activation(function, inputs, *arguments, **options)

    def prepare(self, model: keras.Model, *, global_batch: int | None = None) -> None:
        """Prepare a model that is about to be trained or evaluated under this strategy.

        Called before Keras builds the optimizer and traces its step. An optimizer or metric made
        outside the scope gets a copy on every replica.

        Args:
            model: The model.
            global_batch: Samples per full batch, over all replicas; `None` if unknown.

        Raises:
            UserError: The model was made outside the strategy's scope, or requests XLA on devices
                that do not support it.
        """
        if _upstream.strategy_of(model) is not self:
            raise UserError(
                f"the model {model.name!r} was made outside the strategy's scope, so its variables"
                " are on one device only: make it in strategy.build(lambda: ...), or inside"
                " `with strategy.scope():`"
            )
        state = self.model_state(model)
        if model.jit_compile and self.num_replicas_in_sync > 1:
            if not self.sees_global_batch:
                check_xla(self.devices)
            # Keras would compile around `run`, where XLA fails on several devices.
            model.jit_compile = False
            state.is_jitted = True
        # Some may have been made outside the scope, as in a Sequential that was built there.
        variables = [*model.variables]
        variables += [variable for metric in model.metrics for variable in metric.variables]
        for optimizer in _upstream.optimizers_of(model):
            _upstream.set_strategy(optimizer, self)
            variables += optimizer.variables
        _upstream.distribute(variables, self)
        state.global_batch = global_batch
        # Made before the step that uses it: TensorFlow traces a step that makes one twice.
        _upstream.global_seed(self)
        if self.num_replicas_in_sync > 1 and not self.sees_global_batch:
            _upstream.patches.install_for(model)
            if not state.is_prepared:
                state.is_prepared = True
                warn_of_inexact(model)

    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """Choose the value of `steps_per_execution="auto"` for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples per step, over all replicas; `None` if unknown.
        """
        on_gpus = device_type(self.devices[0]) == "GPU"
        return steps_per_execution.steps_per_execution(model, global_batch, on_gpus=on_gpus)

    def metrics_built(self, model: keras.Model) -> None:
        """Prepare metrics that were made outside the scope: several replicas share them."""

    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        """Do nothing, as there is only one worker."""

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the value of the only worker."""
        del event
        return [value]

    def epoch_ended(self, model: keras.Model) -> None:
        """Check the replicas' variables after an epoch of training or evaluation."""
        if not self.sees_global_batch:
            warn_of_differing_copies(model, self.model_state(model).warned)

    @_upstream.unconverted
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce a value over replicas, as `tf.distribute.Strategy.reduce` does.

        Keras itself averages the first batch over replicas to find its shape. If that is impossible
        (parts of different sizes, text), it gets the first replica's part.
        """
        parts = [
            self.experimental_local_results(leaf)
            for leaf in keras.tree.flatten(value)
            if isinstance(leaf, tf.distribute.DistributedValues)
        ]
        averaged = self.workers == 1 and all(map(_can_be_averaged, parts))
        if _upstream.is_inferring_shapes() and not averaged:
            return keras.tree.map_structure(lambda x: self.experimental_local_results(x)[0], value)
        if self.sees_global_batch:
            return self.reduce_global(reduce_op, value, axis)
        return super().reduce(reduce_op, value, axis)


def _can_be_averaged(parts: Sequence[Any]) -> bool:
    return all(part.dtype.is_floating and part.shape == parts[0].shape for part in parts)
