"""`Workers`: exchange of values and files between the workers of a model.

The values are compared by `agreement.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import keras

from .._upstream.hooks import StrategyHooks, hooks_of
from .._upstream.worker_devices import CHUNK_BYTES, send_bytes
from ..errors import UserError

_Value = TypeVar("_Value")


class Workers:
    """Exchange between the workers of a model; a single worker needs no communication.

    All workers must call the same methods in the same order. Attributes may be read at any time:
    `count`, `is_chief` (the chief writes the files), and the strategy's `StrategyHooks.exchange`,
    `StrategyHooks.compare_workers` and `StepWatch.slow`.
    """

    def __init__(self, model: keras.Model) -> None:
        self._strategy = model.distribute_strategy
        self._hooks: StrategyHooks = hooks_of(model) or StrategyHooks()
        self.count, self.is_chief = self._hooks.workers, self._hooks.is_chief
        self.slow = self._hooks.step_watch.slow
        self.exchange = self._hooks.exchange
        self.compare = self._hooks.compare_workers

    def run_on_chief(self, event: str, action: Callable[[], _Value]) -> _Value:
        """Call `action` on the chief; all workers return its result, or raise its `UserError`."""
        if self.count == 1:
            return action()
        value, error = None, None
        if self.is_chief:
            try:
                value = action()
            except UserError as mistake:
                error = mistake
        result, message = self.exchange(event, [value, None if error is None else str(error)])[0]
        if message is not None:
            raise error or UserError(message)
        return result  # type: ignore[no-any-return]

    def send_file(self, path: Path, size: int) -> None:
        """Copy a file of the chief to all workers."""
        if self.count == 1:
            return
        with open(path, "rb" if self.is_chief else "wb") as file:
            for start in range(0, size, CHUNK_BYTES):
                length = min(CHUNK_BYTES, size - start)
                data = file.read(length) if self.is_chief else None
                received = send_bytes(self._strategy, data, length)
                if not self.is_chief:
                    file.write(received)


# Seconds between two exchanges. An exchange stops the training for a few milliseconds.
_EXCHANGE_SECONDS = 1.0


class PeriodicExchange:
    """Exchanges values between the workers about once a second, after the same steps.

    The chief chooses the step of the next exchange from the duration of the last steps. A single
    worker exchanges after every step. All workers must create the object together.
    """

    def __init__(self, workers: Workers, clock: Callable[[], float]) -> None:
        self._workers, self._clock = workers, clock
        self._steps = self._left = 1
        self._since = clock()

    def is_due(self) -> bool:
        """Count a step; return whether the workers exchange values after the step."""
        self._left -= 1
        return self._left <= 0 or self._workers.count == 1

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the values that all workers have passed, the chief first."""
        everyone = self._workers.exchange(event, [value, self._until_next()])
        self._steps = self._left = everyone[0][1]
        self._since = self._clock()
        return [value for value, _ in everyone]

    def _until_next(self) -> int:
        """Return the steps until the next exchange; at most twice as many, as steps may slow."""
        if self._workers.count == 1:
            return 1
        seconds = self._clock() - self._since
        in_time = int(_EXCHANGE_SECONDS * self._steps / seconds) if seconds > 0 else 2 * self._steps
        return max(1, min(2 * self._steps, in_time))
