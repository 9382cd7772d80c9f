"""Rows of a sweep: filter and group them, and say how their values spread."""

import statistics
from collections.abc import Iterable, Mapping
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
    known = {name: value for name, value in one.items() if value is not None}
    text = {name: format(value * factor, form) for name, value in known.items()}
    if "low" in text and "high" in text:
        return f"{text['median']} ({text['low']} to {text['high']})"
    if "low" in text:
        return f"{text['median']} ({text['low']} or more)"
    return f"{text['median']} (up to {text['high']})" if "high" in text else text["median"]
