"""`RateCurve`: the losses of a learning rate range test, and the rate that they suggest."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path

from ...arguments import as_integer, positive_number
from ...errors import UserError
from ...files import atomic_write

# From far too small to diverging: the default range of a test.
LEAST_RATE, MOST_RATE = 1e-6, 10.0

# The first tenth of the steps is not looked at: the average has not settled.
_SETTLE = 0.1
# A smaller fall of the average may be chance.
_FALL = 0.02
_FEWEST_STEPS = 10
# The loss has exploded once its average is so many times its minimum.
DIVERGENCE = 4.0
# Next to the first loss, a smaller rise is no explosion, however near to zero the least is.
_RISE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateCurve:
    """The losses of a range test over its learning rates.

    Attributes:
        rates: The learning rate of each step, increasing.
        losses: The loss of each step's batch.
        smoothed: Their running average.
        diverged: Whether the test ended because the loss exploded.
    """

    rates: Sequence[float]
    losses: Sequence[float]
    smoothed: Sequence[float]
    diverged: bool

    @property
    def at_minimum(self) -> float:
        """The learning rate at which the average is lowest."""
        return self.rates[min(self._known, key=lambda i: self.smoothed[i])]

    @property
    def steepest(self) -> float:
        """The learning rate at which the average falls fastest, per factor of the rate."""
        known = self._known
        lowest = min(known, key=lambda i: self.smoothed[i])
        inner = [i for i in known if i - 1 in known and i < lowest and i + 1 in known]
        if not inner:
            return self.at_minimum
        return self.rates[min(inner, key=self._slope)]

    @property
    def suggestion(self) -> float:
        """A tenth of the learning rate at the lowest average.

        Where the loss is lowest, the rate is at the edge of divergence: Smith 2017, section 3.3,
        reads the largest rate off where the curve gets ragged. A tenth of it is the rule of Gugger
        2018, "How Do You Find A Good Learning Rate".
        """
        return self.at_minimum / 10

    @property
    def doubt(self) -> str:
        """Reason why the suggestion is unsure; empty if the loss fell, and then rose again.

        To rise again is to explode, or to rise by at least half of the fall.
        """
        first, last = self.smoothed[self._known[0]], self.smoothed[self._known[-1]]
        lowest = min(self.smoothed[i] for i in self._known)
        if not first - lowest > _FALL * abs(first):
            return "the loss did not fall with any learning rate"
        if not (self.diverged or last - lowest > (first - lowest) / 2):
            return f"the loss still fell or stayed low at {self.rates[-1]:.2g}, the largest rate"
        return ""

    @property
    def _known(self) -> range:
        """The steps that count: after the average has settled, before a loss that is no number."""
        end = next((i for i, y in enumerate(self.smoothed) if not math.isfinite(y)), None)
        last = len(self.smoothed) if end is None else max(end, 1)
        return range(min(int(_SETTLE * len(self.smoothed)), last - 1), last)

    def _slope(self, i: int) -> float:
        fall = self.smoothed[i + 1] - self.smoothed[i - 1]
        return fall / math.log(self.rates[i + 1] / self.rates[i - 1])

    def to_csv(self) -> str:
        """Return a table with a row for each step: `step,learning_rate,loss,smoothed_loss`."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("step", "learning_rate", "loss", "smoothed_loss"))
        rows = zip(self.rates, self.losses, self.smoothed, strict=True)
        table.writerows((step, *row) for step, row in enumerate(rows, 1))
        return text.getvalue()


def rates_of(least: float, most: float, steps: int) -> list[float]:
    """Return learning rates from `least` to `most`, each the same factor above the one before.

    Example:
        >>> rates_of(0.01, 1.0, 3)
        [0.01, 0.1, 1.0]
    """
    factor = most / least
    rates = [least * factor ** (step / (steps - 1)) for step in range(steps)]
    return [*rates[:-1], most]


def check_range(*, least: object = LEAST_RATE, most: object = MOST_RATE, steps: object) -> None:
    """Check the arguments of a range test.

    Raises:
        UserError: One is out of range.
    """
    low = positive_number("least", least, hint="pass the first learning rate, such as 1e-6")
    high = positive_number("most", most, hint="pass the last learning rate, such as 10")
    if high <= low:
        raise UserError(
            f"most is {most!r}, but has to be above least, {least!r}: pass a larger one"
        )
    count = as_integer(steps)
    if count is None or count < _FEWEST_STEPS:
        raise UserError(
            f"steps is {steps!r}, but has to be an integer of at least {_FEWEST_STEPS}: pass more"
        )


class LossAverage:
    """A running average of losses, without the zero that it begins with.

    Args:
        smoothing: Decay at each step, at least 0 and below 1.
    """

    def __init__(self, smoothing: float = 0.95) -> None:
        self._smoothing = smoothing
        self._sum = 0.0
        self._steps = 0
        self._least = math.inf
        self._first = 0.0

    def add(self, loss: float) -> tuple[float, bool]:
        """Add the loss of a step; returns the average, and whether that has exploded, or is NaN."""
        self._steps += 1
        self._sum = self._smoothing * self._sum + (1 - self._smoothing) * loss
        average = self._sum / (1 - self._smoothing**self._steps)
        if not math.isfinite(average):
            return average, True
        if self._steps == 1:
            self._first = abs(average)
        self._least = min(self._least, average)
        # A loss may be negative, such as a log-likelihood's.
        rise = max((DIVERGENCE - 1) * abs(self._least), _RISE * self._first)
        return average, average > self._least + rise


def rate_lines(curve: RateCurve) -> list[str]:
    """Say which learning rate to use."""
    doubt = curve.doubt
    how = f"unsure: {doubt}" if doubt else "the loss fell, and then rose again"
    return [
        f"suggested learning rate: {curve.suggestion:.2g}, a tenth of that at the lowest loss"
        f" ({curve.at_minimum:.2g})",
        f"steepest fall of the loss: at {curve.steepest:.2g}",
        f"{len(curve.rates)} steps, from {curve.rates[0]:.2g} to {curve.rates[-1]:.2g}: {how}",
    ]


def write_curve(curve: RateCurve, folder: Path, *, of: str) -> list[Path]:
    """Write the curve as a table and a picture; returns their paths.

    Args:
        curve: The curve.
        folder: That exists.
        of: Name of the model, for the title.
    """
    from ...charts.figures import learning_rate_figure  # draws with Altair

    figure = learning_rate_figure(
        curve.rates,
        curve.losses,
        curve.smoothed,
        suggestion=curve.suggestion,
        steepest=curve.steepest,
    )
    table, picture = folder / "learning-rate.csv", folder / "learning-rate.png"
    atomic_write(table, curve.to_csv())
    atomic_write(picture, figure.png(of=of))
    return [table, picture]
