"""Statistics of runs: spreads, the fit of step times, times to a target, rank correlations."""

import dataclasses
import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# scipy takes a second to import: inside the functions.

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


def format_spread(one: Mapping[str, float | None] | None, form: str, factor: float = 1.0) -> str:
    """Format a spread or an interval as "median (min to max)", without unknown ends.

    Args:
        one: The result of `spread`, or an interval with the same keys.
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
    if one is None or one["median"] is None:
        return ""
    text = {k: format(value * factor, form) for k, value in one.items() if value is not None}
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
    from scipy.optimize import nnls

    batches, rates = np.array(batch_sizes, float), np.array(images_per_sec, float)
    seconds = batches / rates
    columns = np.stack([1 / seconds, batches / seconds], axis=1)
    scale = np.linalg.norm(columns, axis=0)  # they differ by orders of magnitude
    overhead, per_image = map(float, nnls(columns / scale, np.ones(len(seconds)))[0] / scale)
    return StepTimeFit(
        overhead_seconds=overhead, images_per_sec=1 / per_image if per_image else math.inf
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """The time to the target over several runs.

    Args:
        median: When half of the runs have reached it; `None` if fewer than half ever did.
        low: Lower end of its 95 % interval; `None` if unknown. The interval is asymptotic: with
            three runs the lower end is above the true median 1 time in 8, with two 1 time in 4.
        high: Upper end; `None` if unknown, as with few runs.
        reached: Number of runs that reached it.
        runs: Number of all runs.
    """

    median: float | None
    low: float | None
    high: float | None
    reached: int
    runs: int


def time_to_target(durations: Sequence[float], reached: Sequence[bool]) -> TimeToTarget:
    """Estimate the median time to a target, including runs that never reached it.

    If a run was stopped before the target, its time to the target is longer than its duration
    (right-censored data). Excluding such runs, or using their duration as the time to the target,
    makes a setting look better than it is.

    Args:
        durations: Seconds or epochs of each run, until it reached the target or was stopped;
            infinite for a run that would never have reached it.
        reached: Whether each run reached the target.

    Returns:
        The median and its 95 % interval, in the unit of the durations.

    Source: Kaplan & Meier 1958, "Nonparametric Estimation from Incomplete Observations"; the
    interval of the median from that of the curve (Brookmeyer & Crowley 1982), on the log-log scale,
    which keeps fractions between 0 and 1.

    Example:
        >>> found = time_to_target([10.0, 12.0, 30.0], [True, True, False])
        >>> found.median, found.reached, found.runs
        (12.0, 2, 3)
    """
    runs, there = len(durations), sum(map(bool, reached))
    if not runs:
        return TimeToTarget(median=None, low=None, high=None, reached=there, runs=runs)
    from scipy import stats

    # A run that would never have reached it was there to the end of all others.
    end = max((time for time in durations if time < math.inf), default=0.0)
    stopped = [not one for one in reached]
    censored = stats.CensoredData.right_censored([min(t, end) for t in durations], stopped)
    survival = stats.ecdf(censored).sf
    with warnings.catch_warnings():  # there is no interval where the fraction is 1 or 0
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = survival.confidence_interval(0.95, method="log-log")
    return TimeToTarget(
        median=_first_half_or_less(survival),
        low=_first_half_or_less(interval.low),
        high=_first_half_or_less(interval.high),
        reached=there,
        runs=runs,
    )


def _first_half_or_less(function: Any) -> float | None:
    # Rounding of products such as 2/3 * 3/4 must not make a half larger than 0.5.
    times = function.quantiles[function.probabilities <= 0.5 + 1e-9]
    return float(times[0]) if len(times) else None


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


_LEAST_TRIALS = 4  # with fewer, a correlation is meaningless


def importance(
    values: Sequence[Mapping[str, Any]], scores: Sequence[float]
) -> dict[str, float | None]:
    """Return the rank correlation of each hyperparameter with the score.

    For numbers it is Spearman's, from -1 (the larger the value, the lower the score) to 1. For
    names it is the correlation ratio of the score's ranks, from 0 to 1: the square root of the
    fraction of their variance that is between the names. Both consider one hyperparameter at a
    time, and do not detect a best value in the middle of a range.

    Args:
        values: The hyperparameters of each trial.
        scores: The score of each trial.

    Returns:
        A number per hyperparameter, the largest absolute value first; `None` if the hyperparameter
        or the score never changed, or with fewer than four trials.
    """
    names = dict.fromkeys(name for trial in values for name in trial)
    correlations = {
        name: _correlation([trial.get(name) for trial in values], scores)
        for name in names
        if not name.startswith("tuner/")
    }
    return dict(sorted(correlations.items(), key=lambda item: -abs(item[1] or 0.0)))


def _correlation(values: Sequence[Any], scores: Sequence[float]) -> float | None:
    names = [str(value) for value in values]
    if len(scores) < _LEAST_TRIALS or len(set(names)) < 2 or len(set(scores)) < 2:
        return None
    from scipy import stats

    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return float(stats.spearmanr(values, scores).statistic)
    groups = [
        [score for name, score in zip(names, scores, strict=True) if name == group]
        for group in dict.fromkeys(names)
    ]
    # Kruskal and Wallis's statistic is this fraction times one less than the number of trials.
    return math.sqrt(stats.kruskal(*groups).statistic / (len(scores) - 1))
