"""`Pace`: how long the rest of some work takes."""

import time
from collections.abc import Callable

from ..runs.text import time_left


class Pace:
    """Estimates the time that is left from the time that was taken so far.

    Args:
        done: How much was done before.
        clock: Returns the time in seconds, from any origin.

    Example:
        >>> seconds = iter([0.0, 60.0])
        >>> Pace(done=2, clock=lambda: next(seconds)).time_left(4, total=10)
        'about 3.0 minutes left'
    """

    def __init__(self, *, done: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._began = clock()
        self._before = done

    def time_left(self, done: float, *, total: float | None) -> str:
        """Describe how long the rest takes; empty if that is unknown, or there is none.

        Args:
            done: How much is done.
            total: How much there is in all; `None` if unknown.
        """
        if total is None or not self._before < done < total:
            return ""
        seconds = (total - done) * (self._clock() - self._began) / (done - self._before)
        return time_left(seconds)
