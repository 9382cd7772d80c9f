"""`CheckResult`: is a model the same on several replicas, what differs, and why?"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from .comparison import Compared, Difference
from .effects import explains
from .finding import Finding
from .report import cause_lines, stock_lines, training_lines, unknown_lines, wrapped


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of `kdist.check_model`; `print` shows it.

    Attributes:
        trainings: The trainings on kdist, compared with that on one replica of stock Keras.
        stock: The training under `tf.distribute.MirroredStrategy`; `None` if there was none.
        causes: Why trainings differ, each with `name`, `text`, `shown_by`, `fix`, `line` and
            `level`, which is `"note"` for what does not make the model depend on replicas, and
            `"suspect"` for what may, but no experiment shows it.
        precision: The floats that were computed in, and what counts as equal.
        batches: Samples of the steps of an epoch, in words.
        compared: What was compared, in words.
        notes: What else the user should know, such as that a batch could not be made uneven.
    """

    trainings: Sequence[Compared]
    stock: Compared | None
    causes: Sequence[Finding]
    precision: str
    batches: str
    compared: str
    notes: Sequence[str] = ()

    @property
    def equal(self) -> bool:
        """Whether all trainings on kdist are equal to that on one replica, but for rounding."""
        return not any(cause.level == "fault" for cause in self.causes) and all(
            one.is_equal or one.is_noted for one in self.trainings
        )

    @property
    def unexplained(self) -> list[Compared]:
        """The trainings on kdist whose first difference none of `causes` can make."""
        unequal = [one for one in self.trainings if not one.is_equal]
        return [one for one in unequal if not explains(self.causes, one)]

    @property
    def differences(self) -> list[Difference]:
        """What differs in any training on kdist, those of the fewest replicas first."""
        return [difference for one in self.trainings for difference in one.differences]

    def assert_equal(self) -> None:
        """Raise `AssertionError` with the whole text, unless the trainings are equal.

        Raises:
            AssertionError: They are not.
        """
        if not self.equal:
            raise AssertionError(f"the model depends on the number of replicas\n{self}")

    def to_dict(self) -> dict[str, Any]:
        """The result in values that JSON has."""
        return {
            "equal": self.equal,
            "precision": self.precision,
            "batches": self.batches,
            "trainings": [_compared_dict(one) for one in self.trainings],
            "stock": None if self.stock is None else _compared_dict(self.stock),
            "causes": [dataclasses.asdict(cause) for cause in self.causes],
            "unexplained": [one.name for one in self.unexplained],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{'equal' if self.equal else 'NOT EQUAL'}: {self.compared}"]
        lines += wrapped("  ", f"{self.batches}; {self.precision}")
        for one in self.trainings:
            lines += training_lines(one)
        if self.stock is not None:
            lines += stock_lines(self.stock)
        for number, cause in enumerate(self.causes, 1):
            lines += cause_lines(number, cause)
        if self.unexplained:
            lines += ["", *unknown_lines(self.unexplained[0])]
        if any(cause.level == "fault" for cause in self.causes):
            lines += ["", "  Fix this, then check again: one cause can hide another."]
        lines += [line for note in self.notes for line in wrapped("note: ", note)]
        return "\n".join(lines)


def _compared_dict(compared: Compared) -> dict[str, Any]:
    return {
        "name": compared.name,
        "equal": compared.is_equal or compared.is_noted,
        "error": compared.error,
        "differences": [_plain(dataclasses.asdict(one)) for one in compared.differences],
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite numbers, which JSON has not, by `None`."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
