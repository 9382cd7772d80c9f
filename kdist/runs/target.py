"""When training meets its target: accuracies above it in several epochs in a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Met:
    """Where a target was met: the first epoch of the row that beats it.

    Attributes:
        epoch: From 1.
        seconds: Of the wall clock since training began.
    """

    epoch: int
    seconds: float


@dataclass(frozen=True)
class Streak:
    """The epochs in a row that beat their targets, up to the last one that was compared.

    Attributes:
        length: How many.
        epoch: The first of them, from 1; `None` if there is none, or its number is not known.
        seconds: Of training until its end; `None` likewise.
    """

    length: int = 0
    epoch: int | None = None
    seconds: float | None = None

    def after(self, beaten: bool, *, epoch: int | None, seconds: float | None) -> "Streak":
        """The streak once one more epoch has been compared.

        Args:
            beaten: Whether it beat the targets.
            epoch: Its number, from 1.
            seconds: Of training until its end.
        """
        if not beaten:
            return Streak()
        if self.length:
            return Streak(self.length + 1, self.epoch, self.seconds)
        return Streak(1, epoch, seconds)


def beats(values: Mapping[str, float], targets: Mapping[str, float]) -> bool:
    """Whether every value is above its target; to reach it exactly is not enough, nor is NaN.

    Args:
        values: An epoch's, by name; one for each target at least.
        targets: What to beat, by name.
    """
    return all(_is_above(values[name], target) for name, target in targets.items())


def met_target(
    epochs: Sequence[Mapping[str, float | None]], targets: Mapping[str, float], *, patience: int
) -> Met | None:
    """Where a run met its targets in `patience` epochs in a row, as `StopAtAccuracy` counts them.

    Epochs without validation neither count nor interrupt the row.

    Args:
        epochs: Lines of `history.csv`.
        targets: What to beat, by column; of none, nothing is met.
        patience: Epochs in a row, at least 1.
    """
    streak = Streak()
    for line in epochs if targets else ():
        values = {name: value for name in targets if (value := line.get(name)) is not None}
        if len(values) < len(targets):
            continue
        number, seconds = line.get("epoch"), line.get("seconds")
        epoch = None if number is None else int(number)
        streak = streak.after(beats(values, targets), epoch=epoch, seconds=seconds)
        if streak.length == patience:
            break
    if streak.length < patience or streak.epoch is None or streak.seconds is None:
        return None
    return Met(streak.epoch, streak.seconds)


def _is_above(accuracy: float, target: float) -> bool:
    # Keras computes in float32, where 8,500 right of 10,000 come out as 0.85000002.
    return bool(np.float32(accuracy) > np.float32(target))
