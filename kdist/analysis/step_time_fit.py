"""Fit the time of a training step: a fixed overhead plus a time proportional to the batch."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ..arguments import as_real
from ..errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """A step of `batch` images takes `overhead_seconds + batch / images_per_sec`.

    Args:
        overhead_seconds: Time of a step that does not depend on its batch.
        images_per_sec: The rate that large batches approach; infinite if steps of all batch sizes
            take the same time.
    """

    overhead_seconds: float
    images_per_sec: float

    def predict(self, batch: float) -> float:
        """Predict the images per second with batches of `batch` images."""
        seconds = self.overhead_seconds + batch / self.images_per_sec
        return batch / seconds if seconds else math.inf

    def batch_of_diminishing_returns(self, gain: float = 0.05) -> float:
        """Return the batch above which doubling it gains less than `gain` in images per second.

            predict(2 b) / predict(b) - 1  =  overhead / (overhead + 2 b / rate)  =  gain

        Args:
            gain: The smallest worthwhile gain, as a fraction above 0 and below 1.

        Returns:
            Images, as a real number; 0 without overhead, infinite if the rate is infinite.

        Raises:
            UserError: `gain` is out of its range.

        Example:
            >>> fit = StepTimeFit(overhead_seconds=0.1, images_per_sec=1000.0)
            >>> fit.batch_of_diminishing_returns(0.05)
            950.0
        """
        fraction = as_real(gain)
        if fraction is None or not 0 < fraction < 1:
            raise UserError(f"gain has to be above 0 and below 1, received {gain!r}: pass 0.05")
        if not self.overhead_seconds:
            return 0.0
        return self.overhead_seconds * self.images_per_sec * (1 - fraction) / (2 * fraction)


def fit_step_time(batch_sizes: Sequence[float], images_per_sec: Sequence[float]) -> StepTimeFit:
    """Fit a step's overhead and rate to measured speeds.

    Minimizes the squares of the relative errors of a step's time, as a machine's fluctuations are
    relative. Overhead and rate are at least 0 (Lawson & Hanson 1974, "Solving Least Squares
    Problems", chapter 23); otherwise noise could make them negative.

    Args:
        batch_sizes: Images per step, with at least two different values; repetitions are allowed.
        images_per_sec: The speed of each.

    Raises:
        UserError: The lists differ in length, a number is not above 0 and finite, or there are
            fewer than two different batch sizes.

    Example:
        >>> fit = fit_step_time([10, 30], [50.0, 100.0])  # 0.2 and 0.3 seconds per step
        >>> round(fit.overhead_seconds, 9), round(fit.images_per_sec, 6)
        (0.15, 200.0)
    """
    if len(batch_sizes) != len(images_per_sec):
        raise UserError(
            f"received {len(batch_sizes)} batch sizes and {len(images_per_sec)} speeds: pass a"
            " speed for each batch size"
        )
    batches, rates = np.array(batch_sizes, float), np.array(images_per_sec, float)
    for name, values in (("batch size", batches), ("speed", rates)):
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if wrong.size:
            raise UserError(f"received a {name} of {wrong[0]:g}: it has to be above 0 and finite")
    if len(set(batch_sizes)) < 2:
        raise UserError(
            "fitting a step's overhead and rate needs speeds of at least two different batch sizes,"
            f" received {len(set(batch_sizes))}"
        )
    seconds = batches / rates
    columns = np.stack([1 / seconds, batches / seconds], axis=1)
    scale = np.linalg.norm(columns, axis=0)  # they differ by orders of magnitude
    from scipy.optimize import nnls  # takes a second to import

    (overhead, per_image), _ = nnls(columns / scale, np.ones(len(seconds)))
    overhead, per_image = float(overhead / scale[0]), float(per_image / scale[1])
    return StepTimeFit(
        overhead_seconds=overhead, images_per_sec=1 / per_image if per_image else math.inf
    )
