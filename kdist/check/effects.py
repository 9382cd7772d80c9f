"""`explains`: whether a cause can make a training differ as it does."""

from collections.abc import Sequence

from .comparison import Compared, Difference
from .finding import Finding

# All trainings get the same samples, which are taken from the data once.
_OF_DATA = ("data_without_seed", "data_differ_each_time")


def explains(causes: Sequence[Finding], training: Compared) -> bool:
    """Whether one of the causes can make that differ which differs first in a training.

    Args:
        causes: What was found.
        training: A training that is not equal.
    """
    if training.is_noted:
        return True
    faults = [cause for cause in causes if cause.level == "fault"]
    if training.error:
        return bool(faults)
    return any(_can_change(cause.name, training.differences[0]) for cause in faults)


def _can_change(cause: str, first: Difference) -> bool:
    if cause in _OF_DATA:
        return False
    # Other losses may be those of a second model, which are computed after the first one's update.
    return not (cause == "optimizer_state" and first.name == "loss")
