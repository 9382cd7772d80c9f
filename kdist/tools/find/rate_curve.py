"""`RateCurve`: the losses of a learning rate range test, and the suggested rate."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path

from ...arguments import as_integer, positive_number
from ...errors import UserError
from ...files import atomic_write
from ...report.charts import learning_rate_figure
from ...report.page import Section, render_page

# The default range of a test: the first rate is far too small, the last rate diverges.
LEAST_RATE, MOST_RATE = 1e-6, 10.0

# Fraction of steps that is ignored at the start, where the average has not settled.
_SETTLE = 0.1
# A smaller relative fall of the average may be chance.
_FALL = 0.02
_FEWEST_STEPS = 10
# The loss has exploded when its average exceeds this multiple of its minimum.
DIVERGENCE = 4.0
# A rise below this fraction of the first loss is no explosion, even if the minimum is near zero.
_RISE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateCurve:
    """The losses of a range test over its learning rates.

    Attributes:
        rates: The learning rate of each step, increasing.
        losses: The loss of each step's batch.
        smoothed: The running average of the losses.
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

        At the lowest loss, the rate is at the edge of divergence: Smith 2017, section 3.3, takes
        the largest rate from the point where the curve becomes ragged. A tenth of this rate is the
        rule of Gugger 2018, "How Do You Find A Good Learning Rate".
        """
        return self.at_minimum / 10

    @property
    def doubt(self) -> str:
        """Reason why the suggestion is unsure; empty if the loss fell, and then rose again.

        The loss has risen again if it exploded, or if it rose by more than half of the fall.
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
        """The steps to analyze: after the average has settled, before a non-finite average."""
        end = next((i for i, y in enumerate(self.smoothed) if not math.isfinite(y)), None)
        last = len(self.smoothed) if end is None else max(end, 1)
        return range(min(int(_SETTLE * len(self.smoothed)), last - 1), last)

    def _slope(self, i: int) -> float:
        fall = self.smoothed[i + 1] - self.smoothed[i - 1]
        return fall / math.log(self.rates[i + 1] / self.rates[i - 1])

    def to_csv(self) -> str:
        """Return a table with a row per step: `step,learning_rate,loss,smoothed_loss`."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("step", "learning_rate", "loss", "smoothed_loss"))
        rows = zip(self.rates, self.losses, self.smoothed, strict=True)
        table.writerows((step, *row) for step, row in enumerate(rows, 1))
        return text.getvalue()


def rates_of(least: float, most: float, steps: int) -> list[float]:
    """Return learning rates from `least` to `most` with a constant ratio.

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
        UserError: An argument is out of range.
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
    """A running average of losses, corrected for its start at zero.

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
        """Add the loss of a step; return the average, and whether it exploded or is not finite."""
        self._steps += 1
        self._sum = self._smoothing * self._sum + (1 - self._smoothing) * loss
        average = self._sum / (1 - self._smoothing**self._steps)
        if not math.isfinite(average):
            return average, True
        if self._steps == 1:
            self._first = abs(average)
        self._least = min(self._least, average)
        # A loss may be negative, such as a log-likelihood.
        rise = max((DIVERGENCE - 1) * abs(self._least), _RISE * self._first)
        return average, average > self._least + rise


def rate_lines(curve: RateCurve) -> list[str]:
    """Return lines that recommend a learning rate."""
    doubt = curve.doubt
    how = f"unsure: {doubt}" if doubt else "the loss fell, and then rose again"
    return [
        f"suggested learning rate: {curve.suggestion:.2g}, a tenth of that at the lowest loss"
        f" ({curve.at_minimum:.2g})",
        f"steepest fall of the loss: at {curve.steepest:.2g}",
        f"{len(curve.rates)} steps, from {curve.rates[0]:.2g} to {curve.rates[-1]:.2g}: {how}",
    ]


def write_curve(curve: RateCurve, folder: Path, *, of: str) -> list[Path]:
    """Write the curve as a table and a page with its chart; return both paths.

    Args:
        curve: The curve.
        folder: An existing folder.
        of: Name of the model, for the title.
    """
    figure = learning_rate_figure(
        curve.rates,
        curve.losses,
        curve.smoothed,
        suggestion=curve.suggestion,
        steepest=curve.steepest,
    )
    table, page = folder / "learning-rate.csv", folder / "learning-rate.html"
    atomic_write(table, curve.to_csv())
    section = Section(title="Learning rate range test", figures=[figure])
    atomic_write(page, render_page(of, [section]))
    return [table, page]
