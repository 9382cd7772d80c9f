"""`CourseTargets`: the accuracies that the course's assessment asks for on a data set."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class CourseTargets:
    """What the accuracies have to be in two epochs running, and when.

    Attributes:
        validation: The validation accuracy has to be at least this.
        training: The training accuracy has to be at least this; `None` for any.
        is_strict: Whether equal is not enough.
        seconds: Of training, validation included, until the second of the epochs has ended.
    """

    validation: float
    training: float | None = None
    is_strict: bool = False
    seconds: float
