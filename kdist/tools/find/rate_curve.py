"""`RateCurve`: the losses of a learning rate range test, and the suggested rate."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from ...arguments import as_integer, number_within
from ...errors import UserError
from ...files import atomic_write
from ...report.charts import draw_learning_rates
from ...report.html_page import Section, render_page

# The default range of a test: the first rate is far too small, the last rate diverges.
LEAST_RATE, MOST_RATE = 1e-6, 10.0
_FEWEST_STEPS = 10

# The running average forgets 5 % of earlier losses with each step.
_AVERAGE_DECAY = 0.95
# Fraction of steps that is ignored at the start, where the average has not settled.
_SETTLING_SHARE = 0.1
# A smaller relative fall of the average may be chance.
_LEAST_FALL = 0.02
# The loss has exploded when its average exceeds this multiple of its minimum.
DIVERGENCE = 4.0
# A rise below this fraction of the first loss is no explosion, even if the minimum is near zero.
_LEAST_RISE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateCurve:
    """The losses of a range test over its learning rates; `print` shows the suggestion.

    Attributes:
        rates: The learning rate of each step, increasing.
        losses: The loss of each step's batch.
        smoothed: The running average of the losses.
    """

    rates: Sequence[float]
    losses: Sequence[float]
    smoothed: Sequence[float]

    @property
    def diverged(self) -> bool:
        """Whether the loss exploded, or is not finite, at the last step."""
        return has_diverged(self.smoothed)

    @property
    def at_minimum(self) -> float:
        """The learning rate at which the average is lowest."""
        return self.rates[min(self._settled_steps, key=lambda step: self.smoothed[step])]

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
        first, last = self.smoothed[self._settled_steps[0]], self.smoothed[self._settled_steps[-1]]
        lowest = min(self.smoothed[step] for step in self._settled_steps)
        if not first - lowest > _LEAST_FALL * abs(first):
            return "the loss did not fall with any learning rate"
        if not (self.diverged or last - lowest > (first - lowest) / 2):
            return f"the loss still fell or stayed low at {self.rates[-1]:.2g}, the largest rate"
        return ""

    @property
    def _settled_steps(self) -> range:
        """The steps between the settling of the average and the first non-finite average."""
        end = next(
            (step for step, average in enumerate(self.smoothed) if not math.isfinite(average)), None
        )
        last = len(self.smoothed) if end is None else max(end, 1)
        return range(min(int(_SETTLING_SHARE * len(self.smoothed)), last - 1), last)

    def __str__(self) -> str:
        how = f"unsure: {self.doubt}" if self.doubt else "the loss fell, and then rose again"
        return (
            f"suggested learning rate: {self.suggestion:.2g},"
            " a tenth of the rate at the lowest loss"
            f" ({self.at_minimum:.2g})\n"
            f"{len(self.rates)} steps, from {self.rates[0]:.2g} to {self.rates[-1]:.2g}: {how}"
        )


def average_losses(losses: Sequence[float], *, decay: float = _AVERAGE_DECAY) -> list[float]:
    """Return the running average after each loss, corrected for its start at zero."""
    averages, total = [], 0.0
    for step, loss in enumerate(losses, 1):
        total = decay * total + (1 - decay) * loss
        averages.append(total / (1 - decay**step))
    return averages


def has_diverged(averages: Sequence[float]) -> bool:
    """Whether the last average of a loss exploded, or is not finite."""
    last, least = averages[-1], min(averages)
    # A loss may be negative, such as a log-likelihood.
    rise = max((DIVERGENCE - 1) * abs(least), _LEAST_RISE * abs(averages[0]))
    return not math.isfinite(last) or last > least + rise


def space_rates(least: float, most: float, steps: int) -> list[float]:
    """Return learning rates from `least` to `most` with a constant ratio.

    Examples:
        >>> space_rates(0.01, 1.0, 3)
        [0.01, 0.1, 1.0]
    """
    factor = most / least
    rates = [least * factor ** (step / (steps - 1)) for step in range(steps)]
    return [*rates[:-1], most]


def check_range(*, least: object = LEAST_RATE, most: object = MOST_RATE, steps: object) -> None:
    """Check the arguments of a range test."""
    low = number_within("least", least, above=0, hint="pass the first learning rate, such as 1e-6")
    number_within("most", most, above=low, hint="pass the last learning rate, such as 10")
    count = as_integer(steps)
    if count is None or count < _FEWEST_STEPS:
        raise UserError(
            f"steps is {steps!r}, but has to be an integer of at least {_FEWEST_STEPS}: pass more"
            " steps"
        )


def write_curve(curve: RateCurve, folder: Path, *, heading: str) -> Path:
    """Write a page with the chart of the curve into a folder, and return its path."""
    figure = draw_learning_rates(
        curve.rates, curve.losses, curve.smoothed, suggestion=curve.suggestion
    )
    page = folder / "learning-rate.html"
    section = Section(title="Learning rate range test", figures=[figure])
    atomic_write(page, render_page(heading, [section]))
    return page
