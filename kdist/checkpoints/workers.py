"""`Workers`: this process among those that train a model together."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np

from .. import _upstream
from ..errors import UserError

_Value = TypeVar("_Value")
_CHUNK = 1 << 24
"""Bytes that a file is sent by: what a worker needs besides."""


class Workers:
    """What the workers of a model tell each other; for one worker all of it is at hand.

    All have to call the same methods in the same order, but for the properties.

    Args:
        model: The model.

    Attributes:
        count: How many there are.
        is_chief: Whether this is the one that writes.
    """

    def __init__(self, model: keras.Model) -> None:
        strategy = model.distribute_strategy
        self._strategy = strategy
        self._hooks = _upstream.hooks_of(model)
        self.count = 1 if self._hooks is None else self._hooks.workers
        self._worker = 0 if self._hooks is None else self._hooks.worker
        self.is_chief = self._worker == 0

    def slow(self, what: str) -> AbstractContextManager[None]:
        """Inside the `with` block, no step is expected to end soon.

        Args:
            what: What takes long.
        """
        progress = None if self._hooks is None else self._hooks.progress
        return contextlib.nullcontext() if progress is None else progress.slow(what)

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing.
            value: Anything that JSON can hold.

        Raises:
            UserError: The workers are doing different things.
        """
        return [value] if self._hooks is None else self._hooks.exchange(event, value)

    def compare(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` on all workers if they differ in any value."""
        if self._hooks is not None:
            self._hooks.compare_workers(event, values)

    def of_chief(self, event: str, action: Callable[[], _Value]) -> _Value:
        """Do something on the chief alone; returns on all workers what it has returned.

        Args:
            event: What this is.
            action: Returns a value that JSON can hold.

        Raises:
            UserError: On all workers, where `action` has raised it.
        """
        if self.count == 1:
            return action()
        value, error = None, None
        if self.is_chief:
            try:
                value = action()
            except UserError as mistake:
                error = mistake
        found, message = self.exchange(event, [value, None if error is None else str(error)])[0]
        if message is not None:
            raise error or UserError(message)
        return found  # type: ignore[no-any-return]

    def send_file(self, path: Path, size: int) -> None:
        """Give all workers a file of the chief's.

        Args:
            path: There on the chief, and written on the others.
            size: Its bytes.
        """
        if self.count == 1:
            return
        with open(path, "rb" if self.is_chief else "wb") as file:
            for start in range(0, size, _CHUNK):
                length = min(_CHUNK, size - start)
                words = np.zeros(-(-length // 4), np.int32)
                if self.is_chief:
                    words = _words([np.frombuffer(file.read(length), np.uint8)])
                found = _upstream.sum_over_workers(self._strategy, words)
                if not self.is_chief:
                    file.write(found.tobytes()[:length])


def _words(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The arrays' bytes, each from a multiple of 4 on, as numbers that collectives sum."""
    parts = []
    for array in arrays:
        raw = array.tobytes()
        parts.append(raw + bytes(-len(raw) % 4))
    return np.frombuffer(b"".join(parts), np.int32)
