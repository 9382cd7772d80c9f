"""Ctrl-C during training, taken between two batches."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import keras


class _RaiseAtBatchEnd(keras.callbacks.Callback):
    requested = False

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt

    on_test_batch_end = on_train_batch_end


@contextlib.contextmanager
def interrupts_at_batch_end() -> Iterator[keras.callbacks.Callback]:
    """Turn Ctrl-C into a `KeyboardInterrupt` raised by a callback, when a batch has ended.

    Python raises it wherever it happens to be: in one of TensorFlow's destructors it is printed
    and lost, and amid a step the optimizer's variables may be half updated. A second Ctrl-C
    raises at once. Outside the main thread, which alone gets signals, nothing is changed.

    Yields:
        The callback to give to `fit`.
    """
    callback = _RaiseAtBatchEnd()
    if threading.current_thread() is not threading.main_thread():
        yield callback
        return
    before = signal.getsignal(signal.SIGINT)

    def request(*_: Any) -> None:
        callback.requested = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield callback
    finally:
        signal.signal(signal.SIGINT, before)
