"""`StepIntervals`: loss, images and seconds between the lines of every n steps."""

import math
from typing import NamedTuple, Self


class StepTotals(NamedTuple):
    """Sums over some steps.

    Attributes:
        steps: Their number.
        images: Images in them, over all replicas; NaN if unknown.
        seconds: How long they took.
        loss: The sum of the images' losses.
        weight: The number of images in that sum; the steps, where images are not counted.
    """

    steps: float = 0
    images: float = 0.0
    seconds: float = 0.0
    loss: float = 0.0
    weight: float = 0.0

    def plus(self, other: Self) -> "StepTotals":
        """Return the sums over these steps and others."""
        return StepTotals(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Self) -> "StepTotals":
        """Return the sums over these steps, excluding some of them."""
        return StepTotals(*(a - b for a, b in zip(self, other, strict=True)))


class StepIntervals:
    """Divides the totals of epochs into intervals, which may begin in one epoch and end in another.

    Args:
        carried: Totals of an interval that has begun; none by default.

    Example:
        >>> intervals = StepIntervals()
        >>> intervals.end(StepTotals(steps=10, images=1280, seconds=0.5)).images
        1280.0
    """

    def __init__(self, carried: StepTotals | None = None) -> None:
        self._carried = carried or StepTotals()
        self._ended = StepTotals()

    def so_far(self, epoch: StepTotals) -> StepTotals:
        """Return the totals of the interval that has begun, given those of the epoch so far."""
        return self._carried.plus(epoch.minus(self._ended))

    def end(self, epoch: StepTotals) -> StepTotals:
        """Return the totals of the interval, and begin another."""
        ended = self.so_far(epoch)
        self._carried, self._ended = StepTotals(), epoch
        return ended

    def end_epoch(self, epoch: StepTotals) -> None:
        """Keep what an interval has of an epoch, given the epoch's totals."""
        self._carried, self._ended = self.so_far(epoch), StepTotals()


def step_line(step: int, totals: StepTotals) -> str:
    """Return the line about some steps, in the format of TensorFlow's CIFAR-10 tutorial.

    Args:
        step: The number of the last of them.
        totals: Totals of the steps since the previous line.

    Example:
        >>> step_line(120, StepTotals(steps=10, images=1284, seconds=0.6, loss=18.3, weight=10))
        'step 120, loss = 1.83 (2140.0 examples/sec; 0.060 sec/batch)'
    """
    loss = totals.loss / totals.weight if totals.weight else math.nan
    rate = totals.images / totals.seconds if totals.seconds else math.nan
    shown = "" if math.isnan(totals.images) else f"{rate:.1f} examples/sec; "
    seconds = totals.seconds / totals.steps if totals.steps else math.nan
    return f"step {step}, loss = {loss:.2f} ({shown}{seconds:.3f} sec/batch)"
