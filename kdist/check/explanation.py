"""`explain`: what differs in each training on several replicas, and why."""

import dataclasses
from collections.abc import Sequence

from .causes.table import find_causes
from .comparison import Compared, Difference, compare
from .evidence import Evidence
from .finding import Finding
from .precision import Precision
from .record import Record
from .training import Plan, Trained, rounded_training
from .workers import OTHER_SAMPLES


def explain(
    plan: Plan, one: Trained, trainings: Sequence[Trained], precision: Precision
) -> tuple[list[Compared], list[Finding]]:
    """Compare trainings with that on one replica, and find the causes of differences.

    Args:
        plan: What all trainings have in common.
        one: The training on one replica.
        trainings: Those on several.
        precision: What they compute in.
    """
    rounded: Record | None = None
    compared = [compared_with(one.record, t.record, precision, None) for t in trainings]
    if precision.level != "float64" and any(c.differences for c in compared):
        rounded = rounded_training(plan, precision, scored=one.record.is_scored)
        compared = [compared_with(one.record, t.record, precision, rounded) for t in trainings]
    causes: list[Finding] = []
    for index, (training, result) in enumerate(zip(trainings, compared, strict=True)):
        if result.is_equal or result.error == OTHER_SAMPLES:
            continue
        found = find_causes(Evidence(plan, one, training, list(result.differences), precision))
        causes += [cause for cause in found if cause not in causes]
        if any(cause.level == "fault" for cause in found):
            break  # most likely, it is why the others differ: it is to be fixed first
        # A note is about this training alone: it excuses no other.
        is_noted = any(cause.level == "note" for cause in found) and not result.error
        compared[index] = dataclasses.replace(result, is_noted=is_noted)
    return compared, causes


def compared_with(
    one: Record, received: Record, precision: Precision, rounded: Record | None
) -> Compared:
    """Compare a training with that on one replica."""
    differences: list[Difference] = []
    if not received.error:
        differences = compare(one, received, precision, rounded)
    return Compared(name=received.name, differences=differences, error=_error_of(received))


def _error_of(record: Record) -> str:
    return f"{record.error} ({record.line})" if record.error and record.line else record.error
