"""`fit`: train a run's model, until its end, a signal, or a loss that is not finite."""

from collections.abc import Sequence
from typing import Any

import keras

from .._upstream.hooks import is_chief
from .._upstream.optimizers import steps_taken
from .._upstream.worker_callbacks import is_of_the_chief
from ..callbacks import StopAtNonFinite
from ..callbacks.resumable import ResumableCallback
from ..signals import Received
from ..tracking.tracker import ended
from .config import TrainConfig
from .model import RunParts
from .progress import FittedBar
from .run_callbacks import RunCallbacks


def fit(
    config: TrainConfig,
    parts: RunParts,
    made: RunCallbacks,
    *,
    received: Received,
    checkpoint: keras.callbacks.Callback | None,
    workers: int,
    verbose: int,
) -> bool:
    """Train a model; after a signal or a loss that is not finite, end as after the last epoch.

    Args:
        config: The settings.
        parts: The compiled model and its data.
        made: The callbacks.
        received: What `hold_signals` yielded.
        checkpoint: Saves the training, and raises `Interrupted` when a signal has arrived.
        workers: Number of workers that train together. Of several, a signal ends the epoch first.
        verbose: As of `fit`.

    Returns:
        Whether a signal to this worker ended the training.

    Raises:
        KeyboardInterrupt: A second signal arrived.
    """
    model, callbacks, options = parts.model, made.ordered, dict(parts.fit)
    if not config.validate:
        options.pop("validation_data", None)
    ender = StopAfterEpoch(received) if workers > 1 else RaiseAtBatchEnd(received)
    enders = [_RaiseWhenDiverged(made.finite), checkpoint or ender]
    try:
        with ended(callbacks):
            model.fit(
                callbacks=[*callbacks, *enders], epochs=config.epochs, verbose=verbose, **options
            )
    except (KeyboardInterrupt, _Diverged) as error:
        if received.insists:
            raise
        if any(isinstance(callback, FittedBar) for callback in callbacks):
            print()  # Keras's bar has not ended its line
        _end_training(model, callbacks)
        return isinstance(error, KeyboardInterrupt)
    return workers > 1 and received.first is not None


def _end_training(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Do what `fit` does after the last epoch, unless no step was trained."""
    if not steps_taken(model.optimizer):
        return
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            callback.on_test_end()  # does nothing, unless validation was interrupted
    model.optimizer.finalize_variable_values(model.trainable_weights)
    chief = is_chief(model)
    for callback in callbacks:
        if chief or not is_of_the_chief(callback):
            callback.on_train_end()


class _OnSignal(keras.callbacks.Callback):
    """Base class of callbacks that end the training once a signal has arrived.

    Args:
        received: What `hold_signals` yielded.
    """

    def __init__(self, received: Received) -> None:
        super().__init__()
        self.received = received


class RaiseAtBatchEnd(_OnSignal):
    """Raises `Interrupted` at the end of a batch, or before an epoch, once a signal has arrived.

    There the model is whole: during a step the optimizer's variables may be half updated, and an
    exception in one of TensorFlow's destructors is printed and lost.
    """

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Raise, if a signal has arrived."""
        self.received.check()

    on_test_batch_end = on_epoch_begin = on_train_batch_end


class StopAfterEpoch(_OnSignal):
    """Ends the training with its epoch once a signal has arrived: all workers together.

    One that left them within an epoch would leave them waiting.
    """

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Stop, if a signal has arrived."""
        if self.received.first is not None:
            self.model.stop_training = True

    on_epoch_end = on_train_batch_end


class _Diverged(Exception):  # noqa: N818 - never leaves this file
    """The loss is not finite."""


class _RaiseWhenDiverged(ResumableCallback):
    """Keras would validate the model, and end the epoch as if it were whole."""

    def __init__(self, stop: StopAtNonFinite) -> None:
        super().__init__()
        self.stop = stop

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.stop.found is not None:
            raise _Diverged
