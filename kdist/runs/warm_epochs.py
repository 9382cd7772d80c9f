"""The speed of a run's warm epochs: those after the first, which includes tracing the step."""

import statistics
from collections.abc import Sequence


def warm_rates(rates: Sequence[float | None]) -> list[float]:
    """Return the images per second of all epochs but the first, unless no other has a value.

    Args:
        rates: Of each epoch; `None` if it was not measured.

    Example:
        >>> warm_rates([10.0, 90.0, 110.0])
        [90.0, 110.0]
    """
    known = [rate for rate in rates[1:] if rate is not None]
    return known or [rate for rate in rates[:1] if rate is not None]


def median_rate(rates: Sequence[float | None]) -> float | None:
    """Return the median of `warm_rates`; `None` if there is no epoch.

    Args:
        rates: Images per second of each epoch.

    Example:
        >>> median_rate([10.0, 90.0, 110.0])
        100.0
    """
    warm = warm_rates(rates)
    return statistics.median(warm) if warm else None
