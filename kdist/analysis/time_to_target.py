"""The time that runs take to a target, when some never reach it."""

import dataclasses
import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

from ..arguments import as_real
from ..errors import UserError
from .groups import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotYetCurve:
    """The share of runs that have not reached the target, as steps over time.

    Args:
        times: From 0; each share holds from its time to the next.
        share_not_yet: The Kaplan-Meier estimate.
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
        median: By which half of the runs have reached it; `None` if fewer than half ever did.
        low: Lower end of its confidence interval; `None` where it is not known. The interval is
            one for many runs: the lower end of fewer than five is above the true median more often
            than `confidence` admits, of three 1 time in 8, of two 1 time in 4.
        high: Upper end; `None` where it is not known, as with few runs.
        reached: Runs that reached it.
        runs: All runs.
        curve: The share that is not there yet, over time.
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
    """The median time to a target, where runs that never reached it count as such.

    A run that was stopped before the target shows that its time is longer than its duration, not
    that it is the duration (right-censored data). Excluding such runs, or taking their duration
    for a time to the target, makes a setting look better than it is.

    Args:
        durations: Seconds or epochs of each run: until the target, or until it was given up.
        reached: Whether the run reached the target.
        confidence: Of the interval, above 0 and below 1.

    Returns:
        The median and its interval, in the durations' unit.

    Raises:
        UserError: The lists differ in length, a duration is below 0 or not finite, or `confidence`
            is out of its range.

    Source: Kaplan & Meier 1958, "Nonparametric Estimation from Incomplete Observations"; the
    interval of the median from the curve's (Brookmeyer & Crowley 1982), on the log-log scale, which
    keeps shares between 0 and 1.

    Example:
        >>> found = time_to_target([10.0, 12.0, 30.0], [True, True, False])
        >>> found.median, found.reached, found.runs
        (12.0, 2, 3)
    """
    level = as_real(confidence)
    if level is None or not 0 < level < 1:
        raise UserError(f"confidence is above 0 and below 1, received {confidence!r}: pass 0.95")
    if len(durations) != len(reached):
        raise UserError(
            f"received {len(durations)} durations and {len(reached)} values of whether the target"
            " was reached: pass one of each for every run"
        )
    wrong = [value for value in durations if not 0 <= value < math.inf]
    if wrong:
        raise UserError(f"received a duration of {wrong[0]!r}: it is at least 0 and finite")
    steps = _steps(durations, reached, level)
    return TimeToTarget(
        median=_falls_to_half(steps.times, steps.share_not_yet),
        low=_falls_to_half(steps.times, steps.low),
        high=_falls_to_half(steps.times, steps.high),
        reached=sum(map(bool, reached)),
        runs=len(durations),
        curve=_drawn(steps),
    )


def rows_to_target(rows: Sequence[Row], unit: str) -> TimeToTarget:
    """The time to the target of a sweep's rows, in `"seconds"` or `"epochs"`.

    Args:
        rows: Of runs that ended, with `reached_target`, `<unit>` and `<unit>_to_target`.
        unit: Of the time.
    """
    durations = [row_to_target(row, unit) for row in rows]
    return time_to_target([time for time, _ in durations], [there for _, there in durations])


def row_to_target(row: Row, unit: str) -> tuple[float, bool]:
    """The duration of one row, and whether the target was reached then; see `rows_to_target`."""
    time = row[f"{unit}_to_target"]
    there = bool(row["reached_target"]) and time is not None
    return (time if there else row[unit]), there


def _steps(durations: Sequence[float], reached: Sequence[bool], confidence: float) -> NotYetCurve:
    """A step for each run, runs of the same duration too; no number where there is no interval.

    Of several runs at once, as runs are that take the same number of epochs, the curve can fall to
    0 in one step, which has no interval; one after the other they have those of the steps before,
    and the same share and interval after the last.
    """
    if not durations:
        return NotYetCurve(times=(0.0,), share_not_yet=(1.0,), low=(1.0,), high=(1.0,))
    # A run that was given up at the time of another's target had not been there by then.
    order = sorted(range(len(durations)), key=lambda run: (durations[run], not reached[run]))
    turns, given_up = np.arange(len(order)), [not reached[run] for run in order]
    not_yet = stats.ecdf(stats.CensoredData.right_censored(turns, given_up)).sf
    with warnings.catch_warnings():  # where the share is 1 or 0 there is no interval
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = not_yet.confidence_interval(confidence, method="log-log")
    times = [durations[order[int(turn)]] for turn in not_yet.quantiles]
    return NotYetCurve(
        times=(0.0, *map(float, times)),
        share_not_yet=(1.0, *not_yet.probabilities.tolist()),
        low=(1.0, *interval.low.probabilities.tolist()),
        high=(1.0, *interval.high.probabilities.tolist()),
    )


def _drawn(steps: NotYetCurve) -> NotYetCurve:
    """A step for each time, with numbers throughout."""
    low, high = list(steps.low), list(steps.high)
    for index in range(1, len(low)):
        if math.isnan(low[index]) or math.isnan(high[index]):
            # No run has reached it yet, or all have: the data say no more than before.
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


def _falls_to_half(times: Sequence[float], shares: Sequence[float]) -> float | None:
    # The rounding of products such as 2/3 * 3/4 must not put a half above a half.
    at = (time for time, share in zip(times, shares, strict=True) if share <= 0.5 + 1e-9)
    return next(at, None)
