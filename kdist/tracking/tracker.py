"""`Tracker`: the base class of all trackers, which may never interrupt training."""

import contextlib
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras


class Tracker(keras.callbacks.Callback):
    """Forwards training events to callbacks that it creates when training begins.

    If one of them fails, it warns, and training continues without them. Callbacks are created only
    when training begins, so that a tracker can be copied, and a fit that never starts leaves no
    files. Only training and epoch events are forwarded: if a callback handles batches, Keras waits
    for the metrics of every execution.

    A subclass makes the callbacks in `begin`, and closes in `close` what they leave open. They get
    epochs counted from 1, as everywhere in kdist, and `seconds` since training began.

    Args:
        title: The tracker's name in warnings.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self._callbacks: list[Any] = []
        self._open = False
        self._began = 0.0

    def begin(self) -> list[Any]:
        """Return the callbacks to forward events to."""
        return []

    def at_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Write values that the callbacks do not write; epochs count from 1."""

    def close(self, exit_code: int) -> None:
        """Close what was opened; `exit_code` is 0 if training finished."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Make the callbacks and start them."""
        self._open = True
        self._began = time.perf_counter()
        with self._guarded("start"):
            self._callbacks = self.begin()
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
        values = {"seconds": time.perf_counter() - self._began} | dict(logs or {})
        with self._guarded("write an epoch"):
            for callback in self._callbacks:
                callback.on_epoch_end(epoch + 1, dict(values))
            if self._open:
                self.at_epoch_end(epoch + 1, dict(values))

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
