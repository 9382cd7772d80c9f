"""`StepTelemetry`: what training steps measure of weights, gradients and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..analysis.histogram import CODES


@dataclass(frozen=True)
class RawMeasurement:
    """What one step measured, in the rows of `StepTelemetry.weights` and `.layers`.

    Attributes:
        step: The step, from 1.
        weights: Counts of each weight's values before the update, shape `(weights, 4096)`.
        gradients: The same of the global batch's gradients.
        squares: Sums of squares of weight, gradient and update, shape `(weights, 3)`.
        outputs: Counts of each layer's outputs over the global batch, shape `(layers, 4096)`.
    """

    step: int
    weights: np.ndarray
    gradients: np.ndarray
    squares: np.ndarray
    outputs: np.ndarray


class StepTelemetry:
    """Measures some of a model's training steps, and notes the first that is not finite.

    A step that is not due only counts itself and checks its loss. No measurement needs a
    collective: the replicas' counts of outputs are added up when they are read, and the gradients
    are those that the optimizer gets, which are the same on all replicas.

    Args:
        model: A compiled model made under a strategy.
        every: Steps between measurements.
        steps: Steps that were trained before.
        outputs: Whether to measure the outputs of layers.
        searches: Whether to check the outputs in a step that is not due, too, if its loss is not
            finite. Every step then holds all outputs until the loss is known.

    Attributes:
        first: The first step that is due: 1, or the first that updates weights.
        every: Steps between measurements; with gradient accumulation a multiple of its steps.
        weights: The layer and the variable of each row of weights.
        layers: The layer of each row of outputs.
        called: Rows of layers in the order in which the step calls them, once it is traced.
    """

    def __init__(
        self, model: keras.Model, *, every: int, steps: int, outputs: bool, searches: bool
    ) -> None:
        accumulated = getattr(model.optimizer, "gradient_accumulation_steps", None) or 1
        self.first = accumulated
        self.every = -(-every // accumulated) * accumulated
        self.model = model
        self.layers = _upstream.flatten_layers(model)
        self.measures_outputs = outputs
        self.searches_outputs = searches
        trained = {id(weight) for weight in model.trainable_weights}
        self.weights = [
            (layer, weight)
            for layer in [model, *self.layers]
            for weight in _upstream.own_weights(layer)
            if id(weight) in trained
        ]
        self.weight_rows = {id(weight): row for row, (_, weight) in enumerate(self.weights)}
        self.layer_rows = {id(layer): row for row, layer in enumerate(self.layers)}
        self.called: list[int] = []
        self._optimizers = _upstream.optimizers_of(model)
        with model.distribute_strategy.scope():
            self.steps = _per_replica(())
            self.measured_step = _per_replica(())
            self.weight_counts = _per_replica((len(self.weights), CODES))
            self.gradient_counts = _per_replica((len(self.weights), CODES))
            self.squares = _per_replica((len(self.weights), 3))
            self.output_counts = _per_replica((len(self.layers) if outputs else 0, CODES))
            # The first step whose loss was not finite, whether the outputs were checked in it, then
            # what was not finite: a number per weight and per layer.
            self.nonfinite = _per_replica((2 + len(self.weights) + len(self.layers),))
        for part in copies(self.steps):
            part.assign(float(steps))

    def attach(self) -> None:
        """Begin to see the calls of layers and optimizers."""
        # An RNN calls its cell once outside its loop, to learn what it returns.
        rnns = [layer for layer in self.layers if isinstance(layer, keras.layers.RNN)]
        inside = {id(one) for rnn in rnns for one in _upstream.flatten_layers(rnn)}
        seen = [layer for layer in self.layers if id(layer) not in inside]
        _upstream.attach_observers(seen, self._optimizers)

    def detach(self) -> None:
        """Leave layers and optimizers as they were."""
        _upstream.detach_observers(self.layers, self._optimizers)

    def next_due(self, step: int) -> int:
        """Return the first step after `step` that is due."""
        if step < self.first:
            return self.first
        return (step // self.every + 1) * self.every

    def steps_done(self) -> int:
        """Return the number of steps."""
        return int(copies(self.steps)[0].numpy())

    def last_measured(self) -> int:
        """Return the last step that was measured; 0 if none was."""
        return int(copies(self.measured_step)[0].numpy())

    def read(self) -> RawMeasurement:
        """Return what the last measured step measured; all workers have to call it."""
        return RawMeasurement(
            self.last_measured(),
            *(
                variable.read_value().numpy()
                for variable in (
                    self.weight_counts,
                    self.gradient_counts,
                    self.squares,
                    self.output_counts,
                )
            ),
        )

    def read_nonfinite(self) -> tuple[int, bool, np.ndarray, np.ndarray] | None:
        """Return the first step whose loss was not finite; `None` if it always was.

        All workers have to call it.

        Returns:
            The step, whether the outputs were checked in it, and booleans: rows of weights and of
            layers that were not finite in it.
        """
        strategy = self.model.distribute_strategy
        values = np.asarray(_upstream.replica_values(strategy, self.nonfinite))
        steps = values[:, 0]
        if not steps.any():
            return None
        first = steps[steps > 0].min()
        flags: np.ndarray = np.any(values[steps == first, 1:], axis=0)
        weights, layers = np.split(flags[1:], [len(self.weights)])
        return int(first), bool(flags[0]), weights, layers


def copies(variable: Any) -> Sequence[Any]:
    """Return this worker's copies of a variable, one per replica."""
    distributed = isinstance(variable, tf.distribute.DistributedValues)
    return variable.values if distributed else [variable]


def _per_replica(shape: Sequence[int]) -> tf.Variable:
    # float64 counts exactly up to 2**53, and has kernels on all devices.
    return tf.Variable(
        tf.zeros(shape, "float64"),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
