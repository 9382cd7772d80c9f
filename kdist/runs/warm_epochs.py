"""The speed of a run's warm epochs: those after the first, which includes tracing the step."""

import statistics
from collections.abc import Sequence


def warm_rates(rates: Sequence[float]) -> list[float]:
    """Return the images per second of all epochs but the first, unless it is the only one.

    Example:
        >>> warm_rates([10.0, 90.0, 110.0])
        [90.0, 110.0]
    """
    return list(rates[1:] or rates)


def median_rate(rates: Sequence[float]) -> float | None:
    """Return the median of `warm_rates`; `None` without epochs.

    Args:
        rates: Images per second of each epoch.

    Example:
        >>> median_rate([10.0, 90.0, 110.0])
        100.0
    """
    warm = warm_rates(rates)
    return statistics.median(warm) if warm else None
