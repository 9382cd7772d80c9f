"""`News`: what the workers of a training know together after the same step."""

from collections.abc import Callable
from typing import Any

from .meetings import Meetings
from .preemption import HeldSignals, PreemptionSignals
from .save_times import SaveTimes
from .shared_writer import SharedWriter
from .workers import Workers


class News:
    """Signals to any worker, and from the chief whether to save, and what its writer has found.

    Args:
        workers: Of the training, which make this together.
        signals: To this worker.
        writer: Of the chief.
        times: When the chief saves.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        ends_by: The signal that ends the training; `None` if no worker has received one.
        is_due: Whether it is time to save.
    """

    def __init__(
        self,
        workers: Workers,
        signals: PreemptionSignals | HeldSignals,
        writer: SharedWriter,
        times: SaveTimes,
        clock: Callable[[], float],
    ) -> None:
        self._workers, self._signals = workers, signals
        self._writer, self._times = writer, times
        self._steps = Meetings(workers, clock)
        self._validation_steps = Meetings(workers, clock)
        self.ends_by: int | None = None
        self.is_due = False

    def step_ends(self) -> Any:
        """Ask, if it is time; returns what `nonfinite_error` takes, `None` for sound weights."""
        return self._exchange(self._steps, by_time=True) if self._steps.are_due() else None

    def validation_step_ends(self) -> Any:
        """Ask for signals, if it is time; returns as `step_ends`."""
        meetings = self._validation_steps
        return self._exchange(meetings) if meetings.are_due() else None

    def epoch_ends(self) -> Any:
        """Ask; returns as `step_ends`."""
        return self._exchange(self._steps, by_time=True, ends_epoch=True)

    def _exchange(
        self, meetings: Meetings, *, by_time: bool = False, ends_epoch: bool = False
    ) -> Any:
        signal, times = self._signals.received, self._times
        own = [None if signal is None else int(signal), self._writer.found_nonfinite(), False]
        if by_time and self._workers.is_chief and not self._writer.is_busy:
            own[2] = times.at_epoch_end() if ends_epoch else times.by_seconds()
        everyone = meetings.exchange("a step", own)
        self.ends_by = next((one for one, _, _ in everyone if one is not None), None)
        _, bad, self.is_due = everyone[0]
        return bad
