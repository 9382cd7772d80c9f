"""Estimate the time to a target from runs, some of which never reach it."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any

from ..arguments import as_real
from ..errors import UserError
from .groups import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """The time to the target over several runs.

    Args:
        median: When half of the runs have reached it; `None` if fewer than half ever did.
        low: Lower end of its confidence interval; `None` if unknown. The interval is asymptotic:
            with fewer than five runs, the lower end is above the true median more often than
            `confidence` allows, with three runs 1 time in 8, with two 1 time in 4.
        high: Upper end; `None` if unknown, as with few runs.
        reached: Number of runs that reached it.
        runs: Number of all runs.
        times: Times from 0, for `share_not_yet`.
        share_not_yet: The Kaplan-Meier estimate of the fraction of runs that have not reached it
            yet; each holds from its time to the next.
    """

    median: float | None
    low: float | None
    high: float | None
    reached: int
    runs: int
    times: tuple[float, ...] = (0.0,)
    share_not_yet: tuple[float, ...] = (1.0,)


def time_to_target(
    durations: Sequence[float], reached: Sequence[bool], confidence: float = 0.95
) -> TimeToTarget:
    """Estimate the median time to a target, including runs that never reached it.

    If a run was stopped before the target, its time to the target is longer than its duration
    (right-censored data). Excluding such runs, or using their duration as the time to the target,
    makes a setting look better than it is.

    Args:
        durations: Seconds or epochs of each run, until it reached the target or was stopped;
            infinite for a run that would never have reached it.
        reached: Whether each run reached the target.
        confidence: Confidence level of the interval, above 0 and below 1.

    Returns:
        The median and its interval, in the unit of the durations.

    Raises:
        UserError: The lists differ in length, a duration is below 0, NaN or infinite for a run that
            reached the target, or `confidence` is out of its range.

    Source: Kaplan & Meier 1958, "Nonparametric Estimation from Incomplete Observations"; the
    interval of the median from that of the curve (Brookmeyer & Crowley 1982), on the log-log scale,
    which keeps fractions between 0 and 1.

    Example:
        >>> found = time_to_target([10.0, 12.0, 30.0], [True, True, False])
        >>> found.median, found.reached, found.runs
        (12.0, 2, 3)
    """
    level = as_real(confidence)
    if level is None or not 0 < level < 1:
        raise UserError(
            f"confidence has to be above 0 and below 1, received {confidence!r}: pass 0.95"
        )
    if len(durations) != len(reached):
        raise UserError(
            f"received {len(durations)} durations and {len(reached)} values of reached: pass one of"
            " each per run"
        )
    pairs = list(zip(durations, reached, strict=True))
    wrong = [
        time for time, there in pairs if not (0 <= time < math.inf or (time > 0 and not there))
    ]
    if wrong:
        raise UserError(f"received a duration of {wrong[0]!r}: it has to be at least 0 and finite")
    runs, there = len(durations), sum(map(bool, reached))
    if not runs:
        return TimeToTarget(median=None, low=None, high=None, reached=there, runs=runs)
    from scipy import stats  # takes a second to import

    # A run that would never have reached it was there to the end of all others.
    end = max((time for time in durations if time < math.inf), default=0.0)
    stopped = [not one for one in reached]
    censored = stats.CensoredData.right_censored([min(t, end) for t in durations], stopped)
    survival = stats.ecdf(censored).sf
    with warnings.catch_warnings():  # there is no interval where the fraction is 1 or 0
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = survival.confidence_interval(level, method="log-log")
    return TimeToTarget(
        median=_first_half_or_less(survival),
        low=_first_half_or_less(interval.low),
        high=_first_half_or_less(interval.high),
        reached=there,
        runs=runs,
        times=(0.0, *map(float, survival.quantiles)),
        share_not_yet=(1.0, *map(float, survival.probabilities)),
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
