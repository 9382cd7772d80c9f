"""`Meetings`: the steps after which the workers of a training ask each other."""

from collections.abc import Callable
from typing import Any

from .workers import Workers

# An exchange takes a few milliseconds, in which nobody trains.
_SECONDS = 1.0


class Meetings:
    """Has the workers exchange, after the same steps, what each of them alone knows.

    That is about once a second: the chief names the next step, by how long the last ones took. A
    worker that is on its own is asked after every step.

    Args:
        workers: Of the training, which make this together.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(self, workers: Workers, clock: Callable[[], float]) -> None:
        self._workers, self._clock = workers, clock
        self._steps = self._left = 1
        self._since = clock()

    def are_due(self) -> bool:
        """Count a step; returns whether the workers ask each other after it."""
        self._left -= 1
        return self._left <= 0 or self._workers.count == 1

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing.
            value: Anything that JSON can hold.
        """
        everyone = self._workers.exchange(event, [value, self._until_next()])
        self._steps = self._left = everyone[0][1]
        self._since = self._clock()
        return [own for own, _ in everyone]

    def _until_next(self) -> int:
        """Steps, at most twice as many as before, as the next ones may take longer."""
        took = self._clock() - self._since
        in_time = int(_SECONDS * self._steps / took) if took > 0 else 2 * self._steps
        return max(1, min(2 * self._steps, in_time))
