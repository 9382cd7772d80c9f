"""`SaveTimes`: due times of checkpoints, by steps, by seconds and at the ends of long epochs."""

from collections.abc import Callable

# Saves that are due only because an epoch ends take at most this share of the training time.
_MOST_SAVE_SHARE = 0.01


class SaveTimes:
    """Decides when a checkpoint is due, so that saving takes little of the training time."""

    def __init__(
        self, *, every_seconds: float | None, every_steps: int | None, clock: Callable[[], float]
    ) -> None:
        self._every_seconds = every_seconds
        self._every_steps = every_steps
        self._clock = clock
        self._last_save_time = clock()
        self._steps = 0
        self._last_save_seconds = 0.0

    def count_steps(self, steps: int) -> None:
        """Count steps since the last save."""
        self._steps += steps

    def is_due_by_steps(self) -> bool:
        """Whether a save is due by the steps since the last save."""
        return self._every_steps is not None and self._steps >= self._every_steps

    def is_due_by_seconds(self) -> bool:
        """Whether a save is due by the seconds since the last save."""
        return self._every_seconds is not None and self._elapsed() >= self._every_seconds

    def is_due_at_epoch_end(self) -> bool:
        """Whether a save is due at the end of an epoch.

        If no save is due by steps or seconds, the end of the epoch is skipped as long as the last
        save took more than 1 % of the time since then.
        """
        return (
            self.is_due_by_steps()
            or self.is_due_by_seconds()
            or self._last_save_seconds <= _MOST_SAVE_SHARE * self._elapsed()
        )

    def record_save(self, *, began: float) -> None:
        """Record a save that began at the time `began` of the clock, and has now ended."""
        self._last_save_time, self._steps = self._clock(), 0
        self._last_save_seconds = self._last_save_time - began

    def _elapsed(self) -> float:
        return self._clock() - self._last_save_time
