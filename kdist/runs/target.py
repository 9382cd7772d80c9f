"""When training meets its target: the accuracy is above it in several consecutive epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Met:
    """When a target was met: the first of the consecutive epochs that beat it.

    Attributes:
        epoch: The epoch, counted from 1.
        seconds: Wall-clock seconds from the start of training to the end of the epoch.
    """

    epoch: int
    seconds: float


@dataclass(frozen=True)
class Streak:
    """The consecutive epochs that beat their targets, up to the latest one.

    Attributes:
        length: The number of epochs.
        epoch: The first of them, counted from 1; `None` if there is none, or it is unknown.
        seconds: Seconds of training to the end of the first one; `None` likewise.
    """

    length: int = 0
    epoch: int | None = None
    seconds: float | None = None

    def after(self, beaten: bool, *, epoch: int | None, seconds: float | None) -> "Streak":
        """Return the streak after one more epoch.

        Args:
            beaten: Whether the epoch beat the targets.
            epoch: Its number, counted from 1.
            seconds: Seconds of training to its end.
        """
        if not beaten:
            return Streak()
        if self.length:
            return Streak(self.length + 1, self.epoch, self.seconds)
        return Streak(1, epoch, seconds)


def beats(values: Mapping[str, float], targets: Mapping[str, float]) -> bool:
    """Whether every value is above its target; equal values and NaN are not.

    Args:
        values: The values of an epoch by name, including one for each target.
        targets: The targets by name.
    """
    return all(_is_above(values[name], target) for name, target in targets.items())


def met_target(
    epochs: Sequence[Mapping[str, float | None]], targets: Mapping[str, float], *, patience: int
) -> Met | None:
    """Find when a run met its targets in `patience` consecutive epochs, as `StopAtAccuracy` does.

    Epochs without validation are ignored.

    Args:
        epochs: Lines of `history.csv`.
        targets: The targets by column; without any, the result is `None`.
        patience: Number of consecutive epochs, at least 1.
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
    import numpy as np

    # Keras computes in float32, in which 8,500 of 10,000 is 0.85000002.
    return bool(np.float32(accuracy) > np.float32(target))
