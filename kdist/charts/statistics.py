"""Statistics of runs: spreads, the fit of step times, and times to a target."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
"""The result of a point of a sweep, by column."""


def done(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of points that did not fail."""
    return [row for row in rows if row["status"] == "done"]


def failures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return names and errors of the points that failed."""
    return [
        {"name": row["name"], "error": row["error"]} for row in rows if row["status"] == "failed"
    ]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Return median, minimum and maximum of the values that are not `None`; `None` if all are.

    For a single value, minimum and maximum are `None`, as its spread is unknown.

    Example:
        >>> spread([3.0, None, 1.0, 2.0])
        {'median': 2.0, 'low': 1.0, 'high': 3.0}
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    several = len(known) > 1
    return {
        "median": statistics.median(known),
        "low": min(known) if several else None,
        "high": max(known) if several else None,
    }


def format_spread(
    interval: Mapping[str, float | None] | None, form: str, factor: float = 1.0
) -> str:
    """Format a spread or an interval as "median (min to max)", without unknown ends.

    Args:
        interval: The result of `spread`, or an interval with the same keys.
        form: Format of each number, as for `format`.
        factor: Multiplies each number, for example 1,000 to convert to milliseconds.

    Returns:
        The text; empty if there is no median.

    Example:
        >>> format_spread({"median": 0.018, "low": 0.017, "high": 0.02}, ".1f", 1e3)
        '18.0 (17.0 to 20.0)'
        >>> format_spread({"median": 0.018, "low": 0.017, "high": None}, ".1f", 1e3)
        '18.0 (17.0 or more)'
    """
    if interval is None or interval["median"] is None:
        return ""
    text = {k: format(value * factor, form) for k, value in interval.items() if value is not None}
    if "low" in text and "high" in text:
        return f"{text['median']} ({text['low']} to {text['high']})"
    if "low" in text:
        return f"{text['median']} ({text['low']} or more)"
    return f"{text['median']} (up to {text['high']})" if "high" in text else text["median"]


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

    def batch_of_diminishing_returns(self, gain: float) -> float:
        """Return the images of a batch above which doubling it gains less than `gain` in speed.

            predict(2 b) / predict(b) - 1  =  overhead / (overhead + 2 b / rate)  =  gain

        Args:
            gain: The smallest worthwhile gain, as a fraction above 0 and below 1.

        Example:
            >>> fit = StepTimeFit(overhead_seconds=0.1, images_per_sec=1000.0)
            >>> fit.batch_of_diminishing_returns(0.05)
            950.0
        """
        if not self.overhead_seconds:
            return 0.0
        return self.overhead_seconds * self.images_per_sec * (1 - gain) / (2 * gain)


def fit_step_time(batch_sizes: Sequence[float], images_per_sec: Sequence[float]) -> StepTimeFit:
    """Fit a step's overhead and rate to measured speeds.

    Minimizes the squares of the relative errors of a step's time, as a machine's fluctuations are
    relative. Overhead and rate are at least 0 (Lawson & Hanson 1974, "Solving Least Squares
    Problems", chapter 23); otherwise noise could make them negative.

    Args:
        batch_sizes: Images per step, above 0, with at least two different values; repetitions are
            allowed.
        images_per_sec: The speed of each, above 0.

    Example:
        >>> fit = fit_step_time([10, 30], [50.0, 100.0])  # 0.2 and 0.3 seconds per step
        >>> round(fit.overhead_seconds, 9), round(fit.images_per_sec, 6)
        (0.15, 200.0)
    """
    import numpy as np  # here, for a command line that starts at once

    batches, rates = np.array(batch_sizes, float), np.array(images_per_sec, float)
    seconds = batches / rates
    columns = np.stack([1 / seconds, batches / seconds], axis=1)
    scale = np.linalg.norm(columns, axis=0)
    columns /= scale  # of length 1, as they differ by orders of magnitude
    parts = np.linalg.lstsq(columns, np.ones(len(seconds)))[0]
    if parts.min() < 0:
        # Each part without the other; the larger product leaves the smaller error.
        alone = columns.sum(axis=0)
        parts = np.where(alone == alone.max(), alone, 0.0)
    overhead, per_image = map(float, parts / scale)
    return StepTimeFit(
        overhead_seconds=overhead, images_per_sec=1 / per_image if per_image else math.inf
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """The time to the target over several runs.

    Args:
        median: When half of the runs have reached it; `None` if fewer than half ever did.
        low: The fastest run; `None` without a median, and for a single run.
        high: The slowest run; also `None` if any run never reached the target.
        reached: Number of runs that reached it.
        runs: Number of all runs.
    """

    median: float | None
    low: float | None
    high: float | None
    reached: int
    runs: int


def time_to_target(durations: Sequence[float], reached: Sequence[bool]) -> TimeToTarget:
    """Return the median, fastest and slowest time to a target.

    A run that never reached the target counts as slower than all others: excluding it, or taking
    its duration as its time to the target, would make a setting look better than it is.

    Args:
        durations: Seconds or epochs of each run, until it reached the target or was stopped.
        reached: Whether each run reached the target.

    Returns:
        The times in the unit of the durations.

    Example:
        >>> time_to_target([10.0, 12.0, 30.0], [True, True, False])
        TimeToTarget(median=12.0, low=10.0, high=None, reached=2, runs=3)
    """
    pairs = zip(durations, reached, strict=True)
    times = sorted(time if there else math.inf for time, there in pairs)
    count = sum(time < math.inf for time in times)
    median = statistics.median_low(times) if times else math.inf
    is_known, is_spread = median < math.inf, len(times) > 1
    return TimeToTarget(
        median=median if is_known else None,
        low=times[0] if is_known and is_spread else None,
        high=times[-1] if is_spread and count == len(times) else None,
        reached=count,
        runs=len(times),
    )


def rows_to_target(rows: Sequence[Row], unit: str) -> TimeToTarget:
    """Estimate the time to the target from rows of a sweep, in `"seconds"` or `"epochs"`.

    Args:
        rows: Rows of finished runs, with `reached_target`, `<unit>` and `<unit>_to_target`.
        unit: The unit of the time.
    """
    durations = [row_to_target(row, unit) for row in rows]
    return time_to_target([time for time, _ in durations], [reached for _, reached in durations])


def row_to_target(row: Row, unit: str) -> tuple[float, bool]:
    """Return a run's duration, and whether it reached the target then; see `rows_to_target`.

    The duration is infinite for a run that diverged.
    """
    if row.get("diverged"):
        return math.inf, False
    time = row[f"{unit}_to_target"]
    reached = bool(row["reached_target"]) and time is not None
    return (time if reached else row[unit]), reached
