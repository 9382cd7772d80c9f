"""`ReplicaStrategy`: runs Keras's step on each replica, corrected to give the same model."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from .exact_strategy import ExactStrategy
from .gradient_norms import measure_halves
from .gradient_transfer import GradientTransfer
from .model_warnings import warn_of_differing_copies, warn_of_inexact, warn_of_small_batches
from .replica_step import replica_step
from .traced_step import observed_step
from .xla import check_xla


class ReplicaStrategy(ExactStrategy):
    """Base class of strategies whose replicas each run a step."""

    # Whether a step returns the results of metrics; otherwise they are read after it.
    sums_metrics_in_step = False
    gradient_transfer = GradientTransfer()

    def _start(self) -> None:
        """Install the patches, those of Keras's step too."""
        super()._start()
        _upstream.patches.install_for_workers()

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` on every replica, as `tf.distribute.Strategy.run` does.

        Keras's own train and test steps are replaced by steps that give the same result on several
        replicas as on one with the same global batch.
        """
        step = _upstream.stock_step(fn) or _upstream.custom_step(fn)
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

    def prepare(self, model: keras.Model, *, global_batch: int | None = None) -> None:
        """Prepare a model that is about to be trained or evaluated under this strategy."""
        if model.jit_compile and self.num_replicas_in_sync > 1:
            check_xla(self.devices)
        super().prepare(model, global_batch=global_batch)
        state = self.model_state(model)
        if self.num_replicas_in_sync > 1:
            _upstream.patches.install_for(model)
            if not state.is_prepared:
                state.is_prepared = True
                warn_of_inexact(model)

    def epoch_ended(self, model: keras.Model) -> None:
        """Check the replicas' variables after an epoch of training or evaluation."""
        warn_of_differing_copies(model, self.model_state(model).warned)

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
        return super().reduce(reduce_op, value, axis)


def _can_be_averaged(parts: Sequence[Any]) -> bool:
    return all(part.dtype.is_floating and part.shape == parts[0].shape for part in parts)
