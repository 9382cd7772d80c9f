"""Compute a median with minimum and maximum, and format it as "median (min to max)"."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any


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
    """Format a spread or an interval as "median (min to max)"; an unknown end is "?".

    Args:
        one: The result of `spread`, or an interval with the same keys.
        form: Format of each number, as for `format`.
        factor: Multiplies each number, for example 1,000 to convert to milliseconds.

    Returns:
        The text; empty if there is no median.

    Example:
        >>> format_spread({"median": 0.018, "low": 0.017, "high": None}, ".1f", 1e3)
        '18.0 (17.0 to ?)'
    """

    def number(value: float | None) -> str:
        return "?" if value is None else format(value * factor, form)

    if one is None or one["median"] is None:
        return ""
    return f"{number(one['median'])} ({number(one['low'])} to {number(one['high'])})"
