"""`ThroughputMeter`: images per second, independent of any framework."""

import math
import time
from collections.abc import Callable

from ..errors import UserError

Clock = Callable[[], float]


class ThroughputMeter:
    """Adds up images and the seconds that they took.

    Time is measured in intervals: `start` begins one, `lap` extends it to now (the last `lap`
    counts), and `add` ends it with the number of images processed in it.

    Args:
        images: Images counted before.
        seconds: Seconds that they took.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        images: Images counted so far.
        seconds: Seconds that they took.

    Raises:
        UserError: If `images` or `seconds` is below 0 or not finite.

    Example:
        >>> meter = ThroughputMeter()
        >>> meter.add(images=512, seconds=2.0)
        256.0
        >>> meter.add(images=512, seconds=6.0)
        85.33333333333333
        >>> meter.images_per_second
        128.0
    """

    def __init__(
        self, *, images: int = 0, seconds: float = 0.0, clock: Clock = time.perf_counter
    ) -> None:
        _check(images, seconds)
        self.images = images
        self.seconds = seconds
        self._clock = clock
        self._began: float | None = None
        self._ended = 0.0

    @property
    def started(self) -> bool:
        """Whether an interval is being timed."""
        return self._began is not None

    @property
    def running_seconds(self) -> float:
        """Seconds of the interval that is being timed, up to the last `lap`."""
        return 0.0 if self._began is None else self._ended - self._began

    @property
    def images_per_second(self) -> float:
        """The rate over everything added so far; NaN if it took no time."""
        return _rate(self.images, self.seconds)

    def start(self) -> None:
        """Begin an interval of 0 seconds. An earlier one that was not added is dropped."""
        self._began = self._ended = self._clock()

    def lap(self) -> None:
        """Extend the interval to now. Without `start` it does nothing."""
        self._ended = self._clock()

    def add(self, *, images: int, seconds: float | None = None) -> float:
        """Add images, and end the current interval.

        Args:
            images: Images processed in the interval.
            seconds: How long they took; by default the time from `start` to the last `lap`.

        Returns:
            Images per second of these images alone; NaN if they took no time.

        Raises:
            UserError: If a number is below 0 or not finite, or if there is no time: neither
                `seconds` nor a started interval.
        """
        if seconds is None:
            if self._began is None:
                raise UserError(
                    "add() got no seconds and start() was not called: pass seconds, or call"
                    " start() first."
                )
            seconds = self._ended - self._began
        _check(images, seconds)
        self.images += images
        self.seconds += seconds
        self._began = None
        return _rate(images, seconds)


def _rate(images: int, seconds: float) -> float:
    return images / seconds if seconds > 0 else math.nan


def _check(images: int, seconds: float) -> None:
    if not (0 <= images < math.inf and 0 <= seconds < math.inf):
        raise UserError(
            f"The meter got {images!r} images in {seconds!r} seconds: pass numbers of at least 0."
        )
