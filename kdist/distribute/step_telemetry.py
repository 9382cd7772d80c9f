"""`StepTelemetry`: what training steps measure of weights, gradients and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass

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
            self.steps = _numbers(())
            self.measured_step = _numbers(())
            self.weight_counts = _numbers((len(self.weights), CODES))
            self.gradient_counts = _numbers((len(self.weights), CODES))
            self.squares = _numbers((len(self.weights), 3))
            self.output_counts = _numbers((len(self.layers) if outputs else 0, CODES))
            # The first step whose loss was not finite, whether the outputs were checked in it, then
            # what was not finite: a number per weight and per layer.
            self.nonfinite = _numbers((2 + len(self.weights) + len(self.layers),))
        self.steps.assign(float(steps))

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
        return int(self.steps.numpy())

    def last_measured(self) -> int:
        """Return the last step that was measured; 0 if none was."""
        return int(self.measured_step.numpy())

    def read(self) -> RawMeasurement:
        """Return what the last measured step measured."""
        return RawMeasurement(
            self.last_measured(),
            *(
                variable.numpy()
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

        Returns:
            The step, whether the outputs were checked in it, and booleans: rows of weights and of
            layers that were not finite in it.
        """
        first, *found = self.nonfinite.numpy()
        if not first:
            return None
        flags = np.asarray(found, bool)
        weights, layers = np.split(flags[1:], [len(self.weights)])
        return int(first), bool(flags[0]), weights, layers


def _numbers(shape: Sequence[int]) -> tf.Variable:
    # float64 counts exactly up to 2**53, and has kernels on all devices.
    return tf.Variable(tf.zeros(shape, "float64"), trainable=False)
