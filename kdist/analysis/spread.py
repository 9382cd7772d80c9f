"""A median with its minimum and maximum: computed, and written as "median (min to max)"."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any


def spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Median, minimum and maximum of the values that are not `None`; `None` if there is none.

    One value has no spread, so its minimum and maximum are `None`: it is not exact.

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
    """A spread or an interval as "median (min to max)"; an end that is not known is "?".

    Args:
        one: Of `spread`, or an interval with the same keys.
        form: Format of each number, as `format` takes it.
        factor: What each number is multiplied by, such as 1,000 for milliseconds.

    Returns:
        The text, empty where there is no median.

    Example:
        >>> format_spread({"median": 0.018, "low": 0.017, "high": None}, ".1f", 1e3)
        '18.0 (17.0 to ?)'
    """

    def number(value: float | None) -> str:
        return "?" if value is None else format(value * factor, form)

    if one is None or one["median"] is None:
        return ""
    return f"{number(one['median'])} ({number(one['low'])} to {number(one['high'])})"
