"""Estimate the time to a target from runs, some of which never reach it."""

import dataclasses
import math
import warnings
from collections.abc import Sequence

import numpy as np

from ..arguments import as_real
from ..errors import UserError
from .groups import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotYetCurve:
    """The fraction of runs that have not reached the target yet, a step function of time.

    Args:
        times: Times from 0; each fraction holds from its time to the next.
        share_not_yet: The Kaplan-Meier estimate of the fraction.
        low: Lower end of its confidence interval.
        high: Upper end.
    """

    times: tuple[float, ...]
    share_not_yet: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


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
        curve: The fraction of runs that have not reached it yet, over time.
    """

    median: float | None
    low: float | None
    high: float | None
    reached: int
    runs: int
    curve: NotYetCurve


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
    # Such a run was there to the end of all others.
    end = max((time for time in durations if time < math.inf), default=0.0)
    steps = _steps([min(time, end) for time in durations], reached, level)
    return TimeToTarget(
        median=_first_half_or_less(steps.times, steps.share_not_yet),
        low=_first_half_or_less(steps.times, steps.low),
        high=_first_half_or_less(steps.times, steps.high),
        reached=sum(map(bool, reached)),
        runs=len(durations),
        curve=_one_step_per_time(steps),
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


def _steps(durations: Sequence[float], reached: Sequence[bool], confidence: float) -> NotYetCurve:
    """Return the curve with a step per run, also for equal durations; NaN if there is no interval.

    If the last runs have equal durations, such as a number of epochs, the curve would fall to 0 in
    one step, for which there is no interval. One after the other, only the very last step has none;
    fraction and interval of the others are the same.
    """
    if not durations:
        return NotYetCurve(times=(0.0,), share_not_yet=(1.0,), low=(1.0,), high=(1.0,))
    # A run that stopped when another one reached the target had not reached it by then.
    order = sorted(range(len(durations)), key=lambda run: (durations[run], not reached[run]))
    from scipy import stats  # takes a second to import

    ranks, stopped = np.arange(len(order)), [not reached[run] for run in order]
    survival = stats.ecdf(stats.CensoredData.right_censored(ranks, stopped)).sf
    with warnings.catch_warnings():  # there is no interval where the fraction is 1 or 0
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = survival.confidence_interval(confidence, method="log-log")
    times = [durations[order[int(rank)]] for rank in survival.quantiles]
    return NotYetCurve(
        times=(0.0, *map(float, times)),
        share_not_yet=(1.0, *survival.probabilities.tolist()),
        low=(1.0, *interval.low.probabilities.tolist()),
        high=(1.0, *interval.high.probabilities.tolist()),
    )


def _one_step_per_time(steps: NotYetCurve) -> NotYetCurve:
    """Return the curve with one step per time, and without NaN."""
    low, high = list(steps.low), list(steps.high)
    for index in range(1, len(low)):
        if math.isnan(low[index]) or math.isnan(high[index]):
            # No run has reached it yet, or all have: keep the previous interval.
            low[index] = low[index - 1] if steps.share_not_yet[index] else 0.0
            high[index] = high[index - 1]
    after = (*steps.times[1:], math.inf)
    last = [index for index, time in enumerate(steps.times) if time < after[index] or not index]
    return NotYetCurve(
        times=tuple(steps.times[index] for index in last),
        share_not_yet=tuple(steps.share_not_yet[index] for index in last),
        low=tuple(low[index] for index in last),
        high=tuple(high[index] for index in last),
    )


def _first_half_or_less(times: Sequence[float], shares: Sequence[float]) -> float | None:
    # Rounding of products such as 2/3 * 3/4 must not make a half larger than 0.5.
    at = (time for time, share in zip(times, shares, strict=True) if share <= 0.5 + 1e-9)
    return next(at, None)
