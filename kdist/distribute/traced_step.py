"""`TracedStep`: a training step, as it is traced, with what it measures."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from .. import _upstream
from ..analysis.histogram import IS_NONFINITE
from ..ops.value_counts import value_counts

if TYPE_CHECKING:
    from .step_telemetry import StepTelemetry


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
        self._outputs: list[tuple[int, Any]] = []
        self._new_outputs: list[tuple[int, Any]] = []
        self._nonfinite_outputs = tf.zeros(len(telemetry.layers), "float64")
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

    def forward_ended(self, target: Any) -> None:
        """Measure the outputs so far, if due; check the loss."""
        if not self._is_in_step():
            return
        new, self._new_outputs = self._new_outputs, []
        if self._telemetry.searches_outputs:
            self._outputs += new
        if self._telemetry.measures_outputs and new:
            self._nonfinite_outputs += self._count_outputs(new)
        self._find_nonfinite(target)

    def before_update(self, gradients: list[Any], variables: list[Any], optimizer: Any) -> Any:
        """Measure weights and gradients, if due; return the weights then, for `after_update`."""
        self.forward_ended([])  # in case that no tape took the gradients
        rows = [self._telemetry.weight_rows.get(id(variable)) for variable in variables]
        known = [
            (row, variable, gradient)
            for row, variable, gradient in zip(rows, variables, gradients, strict=False)
            if row is not None and not _upstream.is_overwritten(variable)
        ]
        if not known:
            return None
        scale = tf.cast(optimizer.scale_loss(tf.ones(())), "float64")
        static = _upstream.is_compiled_by_xla()

        def measure() -> list[Any]:
            weights = [tf.convert_to_tensor(one) for _, one, _ in known]
            unscaled = [
                _unscaled(one, scale, like)
                for (_, _, one), like in zip(known, weights, strict=True)
            ]
            self._write(self._telemetry.weight_counts, known, map(value_counts, weights))
            self._write(self._telemetry.gradient_counts, known, map(value_counts, unscaled))
            squares = zip(map(_squared_norm, weights), map(_squared_norm, unscaled), strict=True)
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
                _squared_norm(tf.reshape(tf.convert_to_tensor(one), [-1]) - tf.reshape(was, [-1]))
                for (_, one, _), was in zip(known, weights, strict=True)
            ]
            squares = _first_copy(self._telemetry.squares)
            places = tf.stack([rows, tf.fill([len(known)], 2)], 1)
            squares.scatter_nd_update(places, tf.stack(norms))

        self._if(self.due, measure)

    def _count_outputs(self, outputs: Sequence[tuple[int, Any]]) -> Any:
        """Measure outputs, if due; return how many of each layer are not finite."""
        rows = list(dict.fromkeys(row for row, _ in outputs))
        again = [row for row in rows if row in self._counted]
        self._counted.update(rows)

        def measure() -> Any:
            variable = _first_copy(self._telemetry.output_counts)
            nonfinite = tf.zeros_like(self._nonfinite_outputs)
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
                found = tf.reduce_sum(tf.boolean_mask(counts, IS_NONFINITE, axis=1), 1)
                nonfinite = tf.tensor_scatter_nd_add(nonfinite, tf.constant(chosen)[:, None], found)
            return nonfinite

        # Its condition is known before the outputs are, so no step that is not due holds them.
        return _cond(self.due, measure, lambda: tf.zeros_like(self._nonfinite_outputs))

    def _find_nonfinite(self, target: Any) -> None:
        telemetry, found = self._telemetry, self._telemetry.nonfinite
        searches = telemetry.searches_outputs
        outputs = list(self._outputs) if searches else []
        counted = self._nonfinite_outputs
        checked = tf.constant(True) if searches else self.due
        if not (searches or telemetry.measures_outputs):
            checked = tf.constant(False)
        targets = [tf.convert_to_tensor(one) for one in keras.tree.flatten(target)]
        if not targets:
            return
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(one)) for one in targets])
        weights = [weight for _, weight in telemetry.weights]

        def note() -> None:
            by_layer = [
                [_has_nonfinite(one) for row, one in outputs if row == wanted]
                for wanted in range(len(telemetry.layers))
            ]
            flags = [_has_nonfinite(tf.convert_to_tensor(one)) for one in weights]
            flags += [tf.reduce_any(some) if some else tf.constant(False) for some in by_layer]
            noted = tf.cast(tf.stack([checked, *flags]), "float64")
            before_outputs = tf.zeros(len(weights) + 1, "float64")
            noted += tf.concat([before_outputs, counted], 0)
            found.assign(tf.concat([[self.step], noted], 0))

        is_first = tf.logical_and(tf.equal(found[0], 0), tf.logical_not(finite))
        self._if(is_first, note)

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
        with _upstream.observe_step(TracedStep(telemetry)):
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


def _squared_norm(values: Any) -> Any:
    wide = values if values.dtype == tf.float64 else tf.cast(values, "float32")
    return tf.cast(tf.reduce_sum(tf.square(wide)), "float64")


def _has_nonfinite(values: Any) -> Any:
    return tf.reduce_any(tf.logical_not(tf.math.is_finite(values)))
