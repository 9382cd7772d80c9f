"""Causes in rounding."""

from ..comparison import compare
from ..evidence import Evidence
from ..finding import Finding
from ..precision import Precision
from ..source_lines import line_of_operation
from ..training import rounded_training


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
