"""`ResumableCallback`: the base class of kdist's callbacks."""

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import keras

from .._upstream.hooks import is_chief
from ..errors import UserError

Clock = Callable[[], float]
"""Returns the time in seconds, from any origin."""


class ResumableCallback(keras.callbacks.Callback):
    """Base class of callbacks that can be resumed, copied and pickled, and print whole lines.

    A subclass lists in `initial_state` the attributes that a resumed run needs, with their initial
    values. A fit starts from these values unless `set_state` was called before. With `verbose=0`,
    nothing is printed.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {}

    state_is_set_before_training: ClassVar[bool] = True
    """Tells `Checkpoint` to call `set_state` before `on_train_begin`, not after it."""

    def __init__(self, *, verbose: int = 1) -> None:
        super().__init__()
        self.verbose = verbose
        self._has_state_to_resume = False
        self._bar_is_open = False
        self._lines: list[str] = []
        self._assign(self.initial_state)

    def get_state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as JSON-compatible values."""
        return {name: getattr(self, name) for name in self.initial_state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next fit continue from a state that `get_state` of this class returned."""
        if set(state) != set(self.initial_state):
            raise UserError(
                f"The state given to {type(self).__name__} has the keys {sorted(state)}, expected "
                f"{sorted(self.initial_state)}: pass the result of get_state() of the same class"
            )
        self._assign(state)
        self._has_state_to_resume = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start from the initial state, or from the state that `set_state` received."""
        super().on_train_begin(logs)
        if not self._has_state_to_resume:
            self._assign(self.initial_state)
        self._has_state_to_resume = False
        self._bar_is_open = False
        self._lines = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the lines of the previous epoch: its progress bar has ended."""
        super().on_epoch_begin(epoch, logs)
        self._flush()
        self._bar_is_open = bool(self.params and self.params.get("verbose"))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the lines of the last epoch."""
        super().on_train_end(logs)
        self._flush()
        self._bar_is_open = False

    def print_line(self, line: str) -> None:
        """Print a line as soon as no progress bar is open.

        Keras closes the bar of an epoch after every callback's `on_epoch_end`, so a line printed
        in `on_epoch_end` would break the bar. With several workers, only the chief prints.
        """
        if self.verbose and is_chief(self.model):
            self._lines.append(line)
            if not self._bar_is_open:
                self._flush()

    def steps_of_epoch_after(self, batch: int) -> int:
        """Return the steps of the epoch so far, from the `batch` of `on_train_batch_end`.

        With several steps per execution, Keras passes the number of the last possible step of the
        execution, which may be beyond the end of the epoch.
        """
        known = (self.params or {}).get("steps")
        return min(batch + 1, known) if known else batch + 1

    def _flush(self) -> None:
        lines, self._lines = self._lines, []  # swap first: another thread may add lines meanwhile
        for line in lines:
            print(line, flush=True)

    def _assign(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # A model under a strategy cannot be copied or pickled; Keras gives the copy its model.
        detached: Self = object.__new__(type(self))
        detached.__dict__.update(self.__dict__)
        detached.set_model(None)
        detached.set_params(None)
        detached._lines = []
        detached._bar_is_open = False
        return detached.__dict__


class TimedCallback(ResumableCallback):
    """Base class of callbacks that count the seconds of training, over all runs that resume it.

    `clock` returns the time in seconds, from any origin.

    Attributes:
        seconds: Seconds from the start of training to its last step or epoch so far.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"seconds": 0.0}
    seconds: float

    def __init__(self, *, verbose: int = 1, clock: Clock = time.perf_counter) -> None:
        super().__init__(verbose=verbose)
        self.clock = clock
        self._start_time = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting, from 0 or from the seconds of the resumed run."""
        super().on_train_begin(logs)
        self._start_time = self.clock() - self.seconds

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Update the seconds, for a run that is interrupted or saved within an epoch."""
        super().on_train_batch_end(batch, logs)
        self._count_seconds()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Update the seconds, validation included."""
        super().on_epoch_end(epoch, logs)
        self._count_seconds()

    def _count_seconds(self) -> None:
        self.seconds = self.clock() - self._start_time
