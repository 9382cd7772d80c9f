"""When a checkpoint is due: by steps, by seconds, at the ends of epochs that are not too short."""

from collections.abc import Callable

# What the saves at the ends of short epochs may take of the time.
_SHARE = 0.01


class SaveTimes:
    """Says when a checkpoint is due, so that saving takes little of the time.

    Args:
        every_seconds: Seconds from one save to the next; `None` for none by time.
        every_steps: Steps from one save to the next; `None` for none by steps.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(
        self,
        *,
        every_seconds: float | None,
        every_steps: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._every_seconds = every_seconds
        self._every_steps = every_steps
        self._clock = clock
        self._last = clock()
        self._steps = 0
        self._took = 0.0

    def trained(self, steps: int) -> None:
        """Count steps since the last save."""
        self._steps += steps

    def by_steps(self) -> bool:
        """Whether a save is due by the steps since the last one."""
        return self._every_steps is not None and self._steps >= self._every_steps

    def by_seconds(self) -> bool:
        """Whether a save is due by the seconds since the last one."""
        return self._every_seconds is not None and self._elapsed() >= self._every_seconds

    def at_epoch_end(self) -> bool:
        """Whether the end of an epoch is to be saved: not where epochs are over in no time."""
        return self.by_steps() or self.by_seconds() or self._took <= _SHARE * self._elapsed()

    def saved(self, *, began: float) -> None:
        """Note that a save has held up the training until now.

        Args:
            began: What the clock said as it began.
        """
        self._last, self._steps = self._clock(), 0
        self._took = self._last - began

    def _elapsed(self) -> float:
        return self._clock() - self._last
