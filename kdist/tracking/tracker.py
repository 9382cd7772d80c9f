"""`Tracker`: what all trackers share. None of them may stop a training."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras


class Tracker(keras.callbacks.Callback):
    """Hands a fit to the callbacks that it makes when training begins, until one of them fails.

    It makes them no sooner, so that it can be copied and leaves no file of a fit that never began.
    Of the hooks it knows those of training and of epochs: Keras waits for the metrics of every
    execution as soon as a callback looks at batches.

    A subclass makes callbacks in `begin`, and closes in `close` what they leave open.

    Args:
        title: What it is called in the warning.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self._callbacks: list[Any] = []
        self._open = False

    def begin(self) -> list[Any]:
        """Make the callbacks that a fit is handed to."""
        return []

    def at_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Write what the callbacks do not."""

    def close(self, exit_code: int) -> None:
        """Close what was opened; 0 for training that came to its end."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Make the callbacks."""
        self._open = True
        with self._guarded("start"):
            self._callbacks = self.begin()
            for callback in self._callbacks:
                callback.set_params(self.params)
                callback.set_model(self.model)
                callback.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Hand it on."""
        with self._guarded("begin an epoch"):
            for callback in self._callbacks:
                callback.on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Hand a copy on: the values are tracked, not changed."""
        with self._guarded("write an epoch"):
            for callback in self._callbacks:
                callback.on_epoch_end(epoch, dict(logs or {}))
            if self._open:
                self.at_epoch_end(epoch, dict(logs or {}))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Close."""
        self.end(0)

    def end(self, exit_code: int) -> None:
        """Close, unless that has been done.

        Args:
            exit_code: 0 for training that came to its end; 255, as in W&B, for Ctrl-C.
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
                " goes on without it",
                stacklevel=3,
            )


@contextlib.contextmanager
def ended(callbacks: Iterable[keras.callbacks.Callback]) -> Iterator[None]:
    """End the trackers among `callbacks` however a fit is left; Keras does at its end only."""
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
