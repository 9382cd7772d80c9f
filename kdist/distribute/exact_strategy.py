"""`ExactStrategy`: what all strategies of kdist do beyond TensorFlow's."""

import weakref
from collections.abc import Callable, Mapping
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
from .made_outside import remake
from .model_state import ModelState
from .xla import xla_is_automatic


class ExactStrategy(_upstream.StrategyHooks, tf.distribute.Strategy):
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
        _upstream.patches.install()

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
        """Do nothing: the replicas' variables are equal."""
