"""Handle Ctrl-C during training: stop between two batches, and end the fit properly."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from ..tracking.tracker import ended


class _RaiseAtBatchEnd(keras.callbacks.Callback):
    requested = False

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt

    on_test_batch_end = on_train_batch_end


@contextlib.contextmanager
def interrupts_at_batch_end() -> Iterator[keras.callbacks.Callback]:
    """Turn Ctrl-C into a `KeyboardInterrupt` that a callback raises at the end of a batch.

    Python would raise it at any point: in one of TensorFlow's destructors it is printed and lost,
    and during a step the optimizer's variables may be half updated. A second Ctrl-C raises
    immediately. Nothing changes outside the main thread, the only one that receives signals.

    Yields:
        The callback to pass to `fit`.
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


def fit_interruptible(
    model: keras.Model,
    data: Any,
    *,
    callbacks: Sequence[keras.callbacks.Callback],
    announce: Callable[[str], None],
    **options: Any,
) -> bool:
    """Train a model; after Ctrl-C, end training as `fit` does after the last epoch.

    Args:
        model: The compiled model.
        data: Training data, as `fit` takes it.
        callbacks: As for `fit`.
        announce: Called with a message after Ctrl-C.
        **options: Other arguments of `fit`.

    Returns:
        Whether Ctrl-C ended the training.
    """
    try:
        with interrupts_at_batch_end() as interrupts, ended(callbacks):
            model.fit(data, callbacks=[*callbacks, interrupts], **options)
    except KeyboardInterrupt:
        announce("Interrupted: saving the model trained so far.")
        _end_training(model, callbacks)
        return True
    return False


def _end_training(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Do what `fit` does after the last epoch, unless no step was trained."""
    if not int(model.optimizer.iterations.numpy()):
        return
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            callback.on_test_end()  # does nothing, unless validation was interrupted
    model.optimizer.finalize_variable_values(model.trainable_weights)
    for callback in callbacks:
        callback.on_train_end()
