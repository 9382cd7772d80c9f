"""A median, and the least and most around it."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .experiment import Row


def spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Median, least and most of the values that are there; `None` if there is none.

    One value has no spread, so its least and most are `None`: it is not exact.

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


def bars(spreads: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """How far least and most are below and above each median; no way where they are not known."""
    below = [0.0 if one["low"] is None else one["median"] - one["low"] for one in spreads]
    above = [0.0 if one["high"] is None else one["high"] - one["median"] for one in spreads]
    return [below, above]


def told(one: Mapping[str, float | None] | None, form: str, factor: float = 1.0) -> str:
    """A spread or an interval for a reader; an end that is not known is a question mark.

    Example:
        >>> told({"median": 0.018, "low": 0.017, "high": None}, ".1f", 1e3)
        '18.0 (17.0 to ?)'
    """

    def number(value: float | None) -> str:
        return "?" if value is None else format(value * factor, form)

    if one is None or one["median"] is None:
        return ""
    return f"{number(one['median'])} ({number(one['low'])} to {number(one['high'])})"


def done(rows: Iterable[Row]) -> list[Row]:
    """The rows of points that did not fail."""
    return [row for row in rows if row["status"] == "done"]


def failures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Names and errors of the points that failed."""
    return [
        {"name": row["name"], "error": row["error"]} for row in rows if row["status"] == "failed"
    ]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of columns, in the order in which these come first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def failure_lines(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each point that failed."""
    return [f"Failed: {one['name']}: {one['error']}" for one in failed]
