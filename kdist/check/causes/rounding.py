"""Causes in rounding."""

import ast
from collections.abc import Callable

import keras

from ... import _upstream
from ..comparison import compare
from ..evidence import Evidence
from ..finding import Finding
from ..precision import Precision
from ..source_lines import calls_in, first, line_of_operation, name_of_call
from ..training import rounded_training


def bias_before_batch_norm(evidence: Evidence) -> Finding | None:
    """A bias that batch norm subtracts again, so that its gradient is nothing but rounding."""
    layers = _layers_before_batch_norm(evidence)
    biases = [
        d
        for d in evidence.differences
        if d.kind == "weights" and d.layer in layers and "bias" in d.name
    ]
    if not biases:
        return None
    left = {(d.kind, d.index) for d in evidence.beyond_rounding}
    biases = [d for d in biases if (d.kind, d.index) not in left]
    if not biases:
        return None
    names = ", ".join(dict.fromkeys(d.layer for d in biases))
    optimizer = type(_upstream.optimizers_of(evidence.one.model)[0]).__name__
    return Finding(
        name="bias_before_batch_norm",
        text=f"the bias of {names} is in front of a batch norm, which subtracts it again: its"
        f" gradient is only rounding, and {optimizer} makes full steps of it",
        shown_by="on one replica, initial weights that differ by rounding change it as much"
        f" ({biases[0].largest:.1g})",
        fix="use_bias=False in that layer: batch norm has its own",
        line=first(calls_in(evidence.plan.build, _makes_layer(layers))),
    )


def _layers_before_batch_norm(evidence: Evidence) -> dict[str, keras.layers.Layer]:
    """Layers whose result a batch norm gets."""
    norms = [
        call for call in evidence.calls if isinstance(call.layer, keras.layers.BatchNormalization)
    ]
    inputs = {id(leaf) for call in norms for leaf in keras.tree.flatten(call.args)}
    return {
        call.layer.name: call.layer
        for call in evidence.calls
        if any(id(leaf) in inputs for leaf in keras.tree.flatten(call.outputs))
        and not isinstance(call.layer, keras.layers.BatchNormalization)
    }


def _makes_layer(layers: dict[str, keras.layers.Layer]) -> Callable[[ast.Call], bool]:
    kinds = {type(layer).__name__ for layer in layers.values()}
    return lambda call: name_of_call(call).rpartition(".")[2] in kinds


def rounding_grows(evidence: Evidence) -> Finding | None:
    """The differences are no larger than what rounding grows to on one replica."""
    if not evidence.differences or evidence.beyond_rounding:
        return None
    largest = max(evidence.differences, key=lambda d: d.largest)
    return Finding(
        name="rounding_grows",
        text="the training makes large differences of rounding errors, such as by the sign of a"
        " gradient that is 0, a sort of equal values, or a rate that is too large",
        shown_by="on one replica, initial weights that differ by rounding change as much"
        f" ({largest.name}: {largest.largest:.1g})",
        fix="the replicas are not the cause; a smaller learning rate, or an optimizer without"
        " signs, makes the training repeatable",
    )


def float32_values(evidence: Evidence) -> list[Finding]:
    """Numbers in float32 in the middle of float64: the differences are their rounding."""
    if evidence.precision.level != "float64" or evidence.traces is None:
        return []
    lines = dict.fromkeys(map(line_of_operation, evidence.traces[0].in_float32()))
    wide = Precision(level="float32", asked="float64")
    if not lines or not evidence.differences or not _is_rounding(evidence, wide):
        return []
    return [
        Finding(
            name="float32_values",
            text="this is computed in float32 whatever Keras is set to, so the differences are its"
            " rounding: the model is equal as far as float32 goes",
            shown_by="the traced step, and the differences are within float32's rounding"
            f" ({wide.weights_tolerance:.0e})",
            fix="keras.ops.cast(x, self.compute_dtype), or the dtype of the other operand, in"
            " place of float32",
            line=line,
            level="note",
        )
        for line in list(lines)[:1]
    ]


def _is_rounding(evidence: Evidence, precision: Precision) -> bool:
    """Whether the differences are within the rounding of less precise numbers."""
    one, received = evidence.one.record, evidence.received.record
    if not compare(one, received, precision):
        return True
    rounded = rounded_training(evidence.plan, precision, scored=one.is_scored)
    return not compare(one, received, precision, rounded)
