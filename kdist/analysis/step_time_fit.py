"""The time of a training step against its batch: a fixed part and one that grows."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from ..arguments import as_real
from ..errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """A step of `batch` images takes `overhead_seconds + batch / images_per_sec`.

    Args:
        overhead_seconds: What a step costs whatever its batch.
        images_per_sec: The rate that large batches approach; infinite where steps of all batches
            took the same time.
    """

    overhead_seconds: float
    images_per_sec: float

    def predict(self, batch: float) -> float:
        """Images per second with batches of `batch` images."""
        seconds = self.overhead_seconds + batch / self.images_per_sec
        return batch / seconds if seconds else math.inf

    def batch_of_diminishing_returns(self, gain: float = 0.05) -> float:
        """The batch from which on doubling it gains less than a share `gain` of images per second.

            predict(2 b) / predict(b) - 1  =  overhead / (overhead + 2 b / rate)  =  gain

        Args:
            gain: The share that still counts, above 0 and below 1.

        Returns:
            Images, any real number; 0 without overhead, infinite where the rate is.

        Raises:
            UserError: `gain` is out of its range.

        Example:
            >>> fit = StepTimeFit(overhead_seconds=0.1, images_per_sec=1000.0)
            >>> fit.batch_of_diminishing_returns(0.05)
            950.0
        """
        share = as_real(gain)
        if share is None or not 0 < share < 1:
            raise UserError(f"gain is a share above 0 and below 1, received {gain!r}: pass 0.05")
        if not self.overhead_seconds:
            return 0.0
        return self.overhead_seconds * self.images_per_sec * (1 - share) / (2 * share)


def fit_step_time(batch_sizes: Sequence[float], images_per_sec: Sequence[float]) -> StepTimeFit:
    """Fit a step's overhead and rate to measured speeds.

    Least squares of the relative error of a step's time, as a machine's drift is a share of the
    time. Neither part is let below 0 (Lawson & Hanson 1974, "Solving Least Squares Problems",
    chapter 23), which noise alone would do.

    Args:
        batch_sizes: Images of a step, at least two different ones.
        images_per_sec: The speed with each of them; one batch may come several times.

    Returns:
        The fit.

    Raises:
        UserError: The lists differ in length, a number is not above 0 and finite, or fewer than two
            different batches are given.

    Example:
        >>> fit = fit_step_time([10, 30], [50.0, 100.0])  # 0.2 and 0.3 seconds a step
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
            raise UserError(f"received a {name} of {wrong[0]:g}: it is above 0 and finite")
    if len(set(batch_sizes)) < 2:
        raise UserError(
            "a fit of a step's overhead and rate takes speeds of two different batch sizes or"
            f" more, received {len(set(batch_sizes))}"
        )
    seconds = batches / rates
    columns = np.stack([1 / seconds, batches / seconds], axis=1)
    scale = np.linalg.norm(columns, axis=0)  # the two differ by orders of magnitude
    (overhead, per_image), _ = nnls(columns / scale, np.ones(len(seconds)))
    overhead, per_image = float(overhead / scale[0]), float(per_image / scale[1])
    return StepTimeFit(
        overhead_seconds=overhead, images_per_sec=1 / per_image if per_image else math.inf
    )
