"""`Tracker`: the base class of all trackers, which may never interrupt training."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import keras


class Tracker(keras.callbacks.Callback):
    """Forwards training events to callbacks that it creates when training begins.

    If one of them fails, it warns, and training continues without them. Callbacks are created only
    when training begins, so that a tracker can be copied, and a fit that never starts leaves no
    files. Only training and epoch events are forwarded: if a callback handles batches, Keras waits
    for the metrics of every execution.

    A subclass makes the callbacks in `begin`, and closes in `close` what they leave open. They get
    epochs counted from 1, as everywhere in kdist, and `seconds` since training began.

    In a training that is resumed, the killed process may have written more than the checkpoint
    knows of: `is_new_epoch` says what was not written yet.

    Args:
        title: The tracker's name in warnings.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        continues: Whether there may be files of an earlier process of this run; `set_state` says so
            too.
    """

    state_is_set_before_training: ClassVar[bool] = True
    """Tells `Checkpoint` to call `set_state` before `on_train_begin`."""

    on_chief_only: ClassVar[bool] = True
    """Of several workers, the chief tracks."""

    def __init__(self, title: str, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self.title = title
        self.continues = False
        self._of_caller = False
        self._clock = clock
        self._state: Mapping[str, Any] = {}
        self._callbacks: list[Any] = []
        self._open = False
        self._began = 0.0

    def begin(self) -> list[Any]:
        """Return the callbacks to forward events to."""
        return []

    def is_new_epoch(self, epoch: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether an epoch, counted from 1, is still to be written; it is about to be."""
        return True

    def at_epoch_end(self, epoch: int, logs: dict[str, Any], *, is_new: bool) -> None:
        """Write values that the callbacks do not write; epochs count from 1."""

    def flush(self) -> None:
        """Have on the disk what was written so far."""

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as values that JSON can hold."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, after `begin`."""

    def close(self, exit_code: int) -> None:
        """Close what was opened; `exit_code` is 0 if training finished."""

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed run needs; what was written so far is then on the disk."""
        if self._open:
            with self._guarded("write"):
                self.flush()
        return {"seconds": self._clock() - self._began, **self.state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next fit continue from a `state` that `get_state` returned."""
        self._state = state

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Make the callbacks and start them."""
        state, self._state = self._state, {}
        self._of_caller, self.continues = self.continues, self.continues or bool(state)
        self._open = True
        self._began = self._clock() - state.get("seconds", 0.0)
        with self._guarded("start"):
            self._callbacks = self.begin()
            if state:
                self.restore(state)
            for callback in self._callbacks:
                callback.set_params(self.params)
                callback.set_model(self.model)
                callback.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forward the event."""
        with self._guarded("begin an epoch"):
            for callback in self._callbacks:
                callback.on_epoch_begin(epoch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forward the event with a copy of `logs`, which trackers must not change."""
        values = {"seconds": self._clock() - self._began} | dict(logs or {})
        with self._guarded("write an epoch"):
            is_new = self._open and self.is_new_epoch(epoch + 1)
            for callback in self._callbacks if is_new else ():
                callback.on_epoch_end(epoch + 1, dict(values))
            if self._open:
                self.at_epoch_end(epoch + 1, dict(values), is_new=is_new)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Close the tracker."""
        self.end(0)

    def end(self, exit_code: int) -> None:
        """Close the tracker, unless it is closed.

        Args:
            exit_code: 0 if training finished; 255 after Ctrl-C, as in W&B.
        """
        with self._guarded("end"):
            for callback in self._callbacks:
                callback.on_train_end()
            if self._open:
                self.close(exit_code)
        self._callbacks, self._open = [], False
        self.continues = self._of_caller  # the next fit may be another

    @contextlib.contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._callbacks = []
            if self._open:
                self._open = False
                with contextlib.suppress(Exception):
                    self.close(1)
            lines = str(error).strip().splitlines() or [""]
            warnings.warn(
                f"{self.title} could not {doing} ({type(error).__name__}: {lines[0]}): training"
                " continues without it",
                stacklevel=3,
            )


@contextlib.contextmanager
def ended(callbacks: Iterable[keras.callbacks.Callback]) -> Iterator[None]:
    """End the trackers among `callbacks` even after an exception; Keras only does so at the end."""
    exit_code = 0
    try:
        yield
    except BaseException as error:
        exit_code = 255 if isinstance(error, KeyboardInterrupt) else 1
        raise
    finally:
        for callback in callbacks:
            if isinstance(callback, Tracker):
                callback.end(exit_code)
