"""What training steps measure while they are traced: gradients, weights and outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.internals import flatten_layers, is_compiled_by_xla, is_overwritten, optimizers_of
from .._upstream.steps import attach_observers, detach_observers, observe_step, own_weights
from ..layers.histogram import CODES
from ..layers.measurements import mean_loss, stateless_pass, value_counts
from ..spmd.rules.kernels import part_norms, squared_norm

FIELDS = (
    "small_squared_norms",
    "small_inverse_sizes",
    "small_count",
    "large_squared_norms",
    "large_inverse_sizes",
    "large_count",
)
"""Sums over measurements: |gradient|² of small batches, 1 / their samples, and their number; then
the same for large batches. A large batch is the global batch, a small one is the part of a replica,
or on one replica a half (B_big and B_small in McCandlish et al. 2018, appendix A.1)."""


class GradientNorms:
    """Exponentially decaying sums of `FIELDS`, on the model's devices.

    Args:
        model: A compiled model made under a strategy.
        smoothing: Decay of the sums at each measurement, at least 0 and below 1.
        every: Steps between measurements on one replica, which has to compute the gradients of two
            half batches in addition to those of its step.
        first_step: Update of the optimizer at which the first measurement is due; by default its
            present one.
    """

    def __init__(
        self, model: keras.Model, *, smoothing: float, every: int, first_step: int | None = None
    ) -> None:
        self.smoothing = smoothing
        self.every = every
        self.first_step = int(_updates(model)) if first_step is None else first_step
        self._strategy = model.distribute_strategy
        with self._strategy.scope():
            self._sums = tf.Variable(tf.zeros(len(FIELDS), "float64"), trainable=False)

    def add(self, values: Sequence[Any], due: Any = True) -> None:
        """Add a measurement, if it is due."""
        new = tf.stack([tf.cast(v, "float64") for v in values])
        updated = self.smoothing * self._sums + new
        # A gradient that overflowed is skipped, as LossScaleOptimizer skips its step.
        due = tf.logical_and(due, tf.reduce_all(tf.math.is_finite(new)))
        self._sums.assign(tf.where(due, updated, self._sums))

    def read(self) -> list[float]:
        """Return the sums, in the order of `FIELDS`."""
        return [float(value) for value in self._sums.numpy()]

    def restore(self, sums: Sequence[float]) -> None:
        """Continue from the result of `read`, on any number of replicas."""
        self._sums.assign(sums)


def measure_parts(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap a step that will be divided over replicas to measure the gradients of their parts."""

    def measured_step(data: Any) -> Any:
        rows = tf.convert_to_tensor(keras.tree.flatten(data)[0])
        optimizer: Any = model.optimizer
        apply, replaced = optimizer.apply, vars(optimizer).get("apply")

        def measured_apply(grads: Any, trainable_variables: Any = None) -> Any:
            gradients = list(grads)
            known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
            scale = tf.square(_loss_scale(model))
            small = part_norms(rows, *known)
            large = tf.stack([_squared_norm(known) / scale, 1 / tf.shape(rows)[0], 1.0]) * small[2]
            norms.add([small[0] / scale, small[1], small[2], *tf.unstack(large)])
            return apply(gradients, trainable_variables)

        object.__setattr__(optimizer, "apply", measured_apply)
        try:
            return step(data)
        finally:
            if replaced is None:
                del vars(optimizer)["apply"]
            else:
                object.__setattr__(optimizer, "apply", replaced)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(measured_step)
    return unconverted


def measure_halves(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap the step of one replica to measure both halves of every `norms.every`-th batch."""

    def measured_step(data: Any) -> Any:
        steps = _updates(model) - norms.first_step
        due = tf.equal(steps % norms.every, 0)
        rows = tf.shape(keras.tree.flatten(data)[0])[0]
        due = tf.logical_and(due, rows > 1)
        nothing = [tf.zeros((), "float64")] * len(FIELDS)
        norms.add(
            tf.cond(due, lambda: _measurement_of_halves(model, data, rows), lambda: nothing), due
        )
        return step(data)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(measured_step)
    return unconverted


def _measurement_of_halves(model: keras.Model, data: Any, rows: Any) -> list[Any]:
    def gradients_of(half: slice) -> list[Any]:
        half_batch = keras.tree.map_structure(
            lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf)[half], data
        )
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = mean_loss(model, half_batch, training=True)
        gradients = tape.gradient(loss, weights)
        return [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    middle = rows // 2
    with stateless_pass(
        model
    ) as weights:  # one pass for both halves, so that their dropout differs
        gradients = [gradients_of(half) for half in (slice(None, middle), slice(middle, None))]
    counts = [tf.cast(count, "float64") for count in (middle, rows - middle)]
    total = counts[0] + counts[1]
    first, second = (count / total for count in counts)
    whole_batch = [
        tf.cast(first, a.dtype) * a + tf.cast(second, a.dtype) * b
        for a, b in zip(*gradients, strict=True)
    ]
    return [
        _squared_norm(gradients[0]) + _squared_norm(gradients[1]),
        1 / counts[0] + 1 / counts[1],
        tf.constant(2, "float64"),
        _squared_norm(whole_batch),
        1 / total,
        tf.constant(1, "float64"),
    ]


def _squared_norm(gradients: Sequence[Any]) -> Any:
    known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    return tf.add_n([squared_norm(g) for g in known])


def _updates(model: keras.Model) -> Any:
    # A variable; with gradient accumulation, where an update takes several steps, a tensor.
    return tf.cast(tf.convert_to_tensor(model.optimizer.iterations), "int64")


def _loss_scale(model: keras.Model) -> Any:
    return tf.cast(model.optimizer.scale_loss(tf.ones(())), "float64")


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
    """Measures some of a model's training steps.

    A step that is not due only counts itself. No measurement needs a
    collective: the replicas' counts of outputs are added up when they are read, and the gradients
    are those that the optimizer gets, which are the same on all replicas.

    Args:
        model: A compiled model made under a strategy.
        every: Steps between measurements.
        steps: Steps that were trained before.

    Attributes:
        first: The first step that is due: 1, or the first that updates weights.
        every: Steps between measurements; with gradient accumulation a multiple of its steps.
        weights: The layer and the variable of each row of weights.
        layers: The layer of each row of outputs.
        called: Rows of layers in the order in which the step calls them, once it is traced.
    """

    def __init__(self, model: keras.Model, *, every: int, steps: int) -> None:
        accumulated = getattr(model.optimizer, "gradient_accumulation_steps", None) or 1
        self.first = accumulated
        self.every = -(-every // accumulated) * accumulated
        self.model = model
        self.layers = flatten_layers(model)
        trained = {id(weight) for weight in model.trainable_weights}
        self.weights = [
            (layer, weight)
            for layer in [model, *self.layers]
            for weight in own_weights(layer)
            if id(weight) in trained
        ]
        self.weight_rows = {id(weight): row for row, (_, weight) in enumerate(self.weights)}
        self.layer_rows = {id(layer): row for row, layer in enumerate(self.layers)}
        self.called: list[int] = []
        self._optimizers = optimizers_of(model)
        with model.distribute_strategy.scope():
            self.steps = _numbers(())
            self.measured_step = _numbers(())
            self.weight_counts = _numbers((len(self.weights), CODES))
            self.gradient_counts = _numbers((len(self.weights), CODES))
            self.squares = _numbers((len(self.weights), 3))
            self.output_counts = _numbers((len(self.layers), CODES))
        self.steps.assign(float(steps))

    def attach(self) -> None:
        """Begin to see the calls of layers and optimizers."""
        # An RNN calls its cell once outside its loop, to learn what it returns.
        rnns = [layer for layer in self.layers if isinstance(layer, keras.layers.RNN)]
        inside = {id(one) for rnn in rnns for one in flatten_layers(rnn)}
        seen = [layer for layer in self.layers if id(layer) not in inside]
        attach_observers(seen, self._optimizers)

    def detach(self) -> None:
        """Leave layers and optimizers as they were."""
        detach_observers(self.layers, self._optimizers)

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


def _numbers(shape: Sequence[int]) -> tf.Variable:
    # float64 counts exactly up to 2**53, and has kernels on all devices.
    return tf.Variable(tf.zeros(shape, "float64"), trainable=False)


class TracedStep:
    """Adds the measurements of `StepTelemetry` to the step that is traced.

    Args:
        telemetry: Where the results go.

    Attributes:
        recorded: Number of outputs seen so far.
    """

    def __init__(self, telemetry: "StepTelemetry") -> None:
        self.recorded = 0
        self._graph = tf.compat.v1.get_default_graph()
        self._telemetry = telemetry
        self._new_outputs: list[tuple[int, Any]] = []
        self._counted: set[int] = set()
        self.step = telemetry.steps.assign_add(1.0)
        self.due = tf.logical_or(
            tf.equal(self.step % telemetry.every, 0), tf.equal(self.step, telemetry.first)
        )
        measured = telemetry.measured_step
        measured.assign(tf.where(self.due, self.step, measured))

    def layer_called(self, layer: keras.layers.Layer, outputs: Any) -> None:
        """Note the outputs of a layer, unless it is called in a loop or a function of the step."""
        row = self._telemetry.layer_rows.get(id(layer))
        tensors = [one for one in keras.tree.flatten(outputs) if self._is_measurable(one)]
        if row is None or not tensors:
            return
        self.recorded += 1
        if row not in self._telemetry.called:
            self._telemetry.called.append(row)
        self._new_outputs += [(row, tensor) for tensor in tensors]

    def forward_ended(self) -> None:
        """Measure the outputs so far, if due."""
        if not self._is_in_step():
            return
        new, self._new_outputs = self._new_outputs, []
        if new:
            self._count_outputs(new)

    def before_update(self, gradients: list[Any], variables: list[Any], optimizer: Any) -> Any:
        """Measure weights and gradients, if due; return the weights then, for `after_update`."""
        self.forward_ended()  # in case that no tape took the gradients
        rows = [self._telemetry.weight_rows.get(id(variable)) for variable in variables]
        known = [
            (row, variable, gradient)
            for row, variable, gradient in zip(rows, variables, gradients, strict=False)
            if row is not None and not is_overwritten(variable)
        ]
        if not known:
            return None
        scale = tf.cast(optimizer.scale_loss(tf.ones(())), "float64")
        static = is_compiled_by_xla()

        def measure() -> list[Any]:
            weights = [tf.convert_to_tensor(one) for _, one, _ in known]
            unscaled = [
                _unscaled(one, scale, like)
                for (_, _, one), like in zip(known, weights, strict=True)
            ]
            self._write(self._telemetry.weight_counts, known, map(value_counts, weights))
            self._write(self._telemetry.gradient_counts, known, map(value_counts, unscaled))
            squares = zip(map(_squares_of, weights), map(_squares_of, unscaled), strict=True)
            zero = tf.zeros((), "float64")
            self._write(self._telemetry.squares, known, [tf.stack([*two, zero]) for two in squares])
            return [weight if static else tf.reshape(weight, [-1]) for weight in weights]

        def skip() -> list[Any]:
            # XLA has to know shapes; otherwise nothing is held.
            return [tf.zeros(one.shape if static else [0], one.dtype) for _, one, _ in known]

        return known, _cond(self.due, measure, skip)

    def after_update(self, before: Any) -> None:
        """Measure the update, if due."""
        if before is None:
            return
        known, weights = before

        def measure() -> None:
            rows = tf.constant([row for row, _, _ in known])
            norms = [
                _squares_of(tf.reshape(tf.convert_to_tensor(one), [-1]) - tf.reshape(was, [-1]))
                for (_, one, _), was in zip(known, weights, strict=True)
            ]
            squares = _first_copy(self._telemetry.squares)
            places = tf.stack([rows, tf.fill([len(known)], 2)], 1)
            squares.scatter_nd_update(places, tf.stack(norms))

        self._if(self.due, measure)

    def _count_outputs(self, outputs: Sequence[tuple[int, Any]]) -> None:
        rows = list(dict.fromkeys(row for row, _ in outputs))
        again = [row for row in rows if row in self._counted]
        self._counted.update(rows)

        def measure() -> None:
            variable = _first_copy(self._telemetry.output_counts)
            for add, chosen in ((False, [r for r in rows if r not in again]), (True, again)):
                if not chosen:
                    continue
                by_row = [
                    tf.add_n([value_counts(one) for row, one in outputs if row == wanted])
                    for wanted in chosen
                ]
                counts = tf.cast(tf.stack(by_row), "float64")
                slices = tf.IndexedSlices(counts, tf.constant(chosen))
                (variable.scatter_add if add else variable.scatter_update)(slices)

        # Its condition is known before the outputs are, so no step that is not due holds them.
        self._if(self.due, measure)

    def _is_measurable(self, value: Any) -> bool:
        """Whether these are numbers of the step itself, not of a loop or a function inside it."""
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            return False
        return tf.executing_eagerly() or value.graph is self._graph

    def _is_in_step(self) -> bool:
        return tf.executing_eagerly() or tf.compat.v1.get_default_graph() is self._graph

    def _write(self, variable: Any, known: Sequence[Any], values: Any) -> None:
        stacked = tf.cast(tf.stack(list(values)), "float64")
        rows = tf.constant([row for row, _, _ in known])
        _first_copy(variable).scatter_update(tf.IndexedSlices(stacked, rows))

    def _if(self, condition: Any, do: Callable[[], None]) -> None:
        def done() -> Any:
            do()
            return tf.constant(0)

        _cond(condition, done, lambda: tf.constant(0))


def observed_step(telemetry: "StepTelemetry", step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a step to measure it."""

    def measured_step(data: Any) -> Any:
        with observe_step(TracedStep(telemetry)):
            return step(data)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(measured_step)
    return unconverted


def _first_copy(variable: Any) -> Any:
    """The variable that a step sees; only this one has the methods that change some rows."""
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable


def _cond(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    unconverted = tf.autograph.experimental.do_not_convert
    return tf.cond(condition, unconverted(yes), unconverted(no))


def _unscaled(gradient: Any, scale: Any, like: Any) -> Any:
    """The dense gradient of the loss itself, without the factor against underflow."""
    if gradient is None:
        return tf.zeros_like(like)
    dense = tf.convert_to_tensor(gradient)
    return dense / tf.cast(scale, dense.dtype)


def _squares_of(values: Any) -> Any:
    wide = values if values.dtype == tf.float64 else tf.cast(values, "float32")
    return tf.cast(tf.reduce_sum(tf.square(wide)), "float64")


@dataclass
class ModelState:
    """Stored for a model as long as the model exists."""

    is_compared: bool = False
    """Whether the workers have compared the model as it is compiled."""
    prepared: tuple[Any, ...] = ()
    """The parts of the model that were prepared last."""
    gradient_norms: GradientNorms | None = None
    """Measures the gradients of its steps, if not `None`."""
    telemetry: StepTelemetry | None = None
    """Measures its steps, if not `None`."""
    is_jitted: bool = False
    """Whether its step is compiled with XLA inside `run`."""
    chosen_steps: dict[int | None, int] | None = None
    """Steps per execution by global batch; `None` if it was not compiled with "auto"."""
    is_evaluating: bool = False
    """Whether it is evaluating or predicting, with one step per execution."""

    def reset(self) -> None:
        """Reset what depends on how the model was compiled."""
        self.is_jitted = False
        self.is_compared = False
        self.prepared = ()
        self.chosen_steps = None
        self.is_evaluating = False
