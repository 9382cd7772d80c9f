"""`Targets`: what the accuracies have to be, and when."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ..data.course_targets import CourseTargets
from ..data.datasets import DATASETS
from .facts import Epoch

GENERATIONS = (1, 2)
EPOCHS_RUNNING = 2


class Targets(CourseTargets):
    """What the accuracies have to be in two epochs running, and when."""

    def __str__(self) -> str:
        sign = ">" if self.is_strict else "≥"
        training = "" if self.training is None else f"training accuracy {sign} {self.training:g}, "
        return f"{training}validation accuracy {sign} {self.validation:g}, two epochs running"

    def are_met(self, epoch: Epoch) -> bool:
        """Whether an epoch has the accuracies."""
        wanted = {"val_": self.validation, "": self.training}
        return all(
            target is None or self._is_met(accuracy(epoch.values, prefix), target)
            for prefix, target in wanted.items()
        )

    def _is_met(self, value: float | None, target: float) -> bool:
        if value is None:
            return False
        import numpy as np

        # Keras computes in float32, in which 7,500 of 10,000 is 0.75.
        value, target = (float(np.float32(number)) for number in (value, target))
        return value > target if self.is_strict else value >= target

    def met(self, epochs: Sequence[Epoch]) -> int | None:
        """Return the number, from 1, of the epoch in which they are met; `None` if in none."""
        running = 0
        for number, epoch in enumerate(epochs, start=1):
            running = running + 1 if self.are_met(epoch) else 0
            if running == EPOCHS_RUNNING:
                return number
        return None


def targets_of(generation: int, data: str) -> Targets:
    """Return the targets of a generation of the course on a data set.

    Args:
        generation: 1 or 2.
        data: Title of the data set; one without targets in `DATASETS` has those of the first.

    Example:
        >>> targets_of(2, "CIFAR-10")
        Targets(validation=0.75, training=None, is_strict=False, seconds=300)
    """
    known = {one.title: one for one in DATASETS.values() if one.targets}
    chosen = known.get(data, next(iter(known.values())))
    return Targets(**dataclasses.asdict(chosen.targets[generation]))


def accuracy(values: Mapping[str, float], prefix: str = "") -> float | None:
    """Return the accuracy of an epoch, whatever its metric is called; not that of the top 5.

    Example:
        >>> accuracy({"loss": 1.0, "sparse_categorical_accuracy": 0.5, "val_acc": 0.25})
        0.5
    """
    names = [name for name in values if name.startswith("val_") == bool(prefix)]
    found = [
        name
        for name in names
        if (name == f"{prefix}acc" or name.endswith("accuracy")) and "top" not in name
    ]
    value = values[found[0]] if found else None
    return None if value is None or math.isnan(value) else value
