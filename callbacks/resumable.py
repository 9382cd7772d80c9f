"""What every callback here shares: lines beside Keras's progress bar, copies, and a state."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import keras

from ..errors import UserError


class ResumableCallback(keras.callbacks.Callback):
    """A callback that prints whole lines, can be copied and pickled, and can be resumed.

    A subclass names in `fresh_state` the attributes that a resumed run needs and the values with
    which they begin. A fit begins with these values, unless `set_state` was called before it.

    Args:
        verbose: 0 prints nothing.
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *, verbose: int = 1) -> None:
        super().__init__()
        self.verbose = verbose
        self._resumed = False
        self._bar_is_open = False
        self._lines: list[str] = []
        self._assign(self.fresh_state)

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed run needs, in values that JSON can hold."""
        return {name: getattr(self, name) for name in self.fresh_state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next fit go on from `state`, as `get_state` returned it.

        Args:
            state: The state of a callback of the same class.

        Raises:
            UserError: If it is not a state of this class.
        """
        if set(state) != set(self.fresh_state):
            raise UserError(
                f"The state given to {type(self).__name__} holds {sorted(state)}, but has to hold "
                f"{sorted(self.fresh_state)}: pass what get_state() of the same class returned."
            )
        self._assign(state)
        self._resumed = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin with a fresh state, or with the one that `set_state` brought."""
        super().on_train_begin(logs)
        if not self._resumed:
            self._assign(self.fresh_state)
        self._resumed = False
        self._bar_is_open = False
        self._lines = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the lines of the epoch before, whose progress bar has ended."""
        super().on_epoch_begin(epoch, logs)
        self._flush()
        self._bar_is_open = bool(self.params and self.params.get("verbose"))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the lines of the last epoch."""
        super().on_train_end(logs)
        self._flush()
        self._bar_is_open = False

    def say(self, line: str) -> None:
        """Print a line, once no progress bar is in its way.

        Keras ends the bar of an epoch after every callback's `on_epoch_end`; a line printed there
        would stand in the middle of the bar.
        """
        if self.verbose:
            self._lines.append(line)
            if not self._bar_is_open:
                self._flush()

    def steps_until(self, batch: int) -> int:
        """Steps of the epoch up to and with `batch`, as `on_train_batch_end` names it.

        Keras names the last step that an execution of several could have had, which an epoch of
        known size may not have.
        """
        known = (self.params or {}).get("steps")
        return min(batch + 1, known) if known else batch + 1

    def _flush(self) -> None:
        for line in self._lines:
            print(line, flush=True)
        self._lines = []

    def _assign(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # A model under a strategy can be neither copied nor pickled, and the copy gets its own.
        detached: Self = object.__new__(type(self))
        detached.__dict__.update(self.__dict__)
        detached.set_model(None)
        detached.set_params(None)
        detached._lines = []
        detached._bar_is_open = False
        return detached.__dict__
