"""`EarlyEnd`: after a signal or a non-finite loss, a run ends as after its last epoch."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import keras

from .._upstream.hooks import is_chief
from .._upstream.optimizers import steps_taken
from .._upstream.worker_callbacks import is_of_the_chief
from ..callbacks import StopAtNonFinite
from ..callbacks.resumable import ResumableCallback
from ..signals import Received
from .progress import FittedBar
from .run_callbacks import RunCallbacks


class EarlyEnd:
    """Context manager around the `fit` of a run, so that the run may end early.

    A second signal raises `KeyboardInterrupt`. Any other exception passes through unchanged.

    Args:
        model: The compiled model.
        made: The run's callbacks.
        received: The value that `hold_signals` yielded.
        checkpoint: Saves the training, and raises `Interrupted` when a signal has arrived.
        workers: Number of workers that train together. With several workers, a signal ends the
            training after the epoch.

    Attributes:
        callbacks: Callbacks for `fit`, in order.
        interrupted: Whether a signal to this worker ended the training; known after it.
    """

    def __init__(
        self,
        model: keras.Model,
        made: RunCallbacks,
        *,
        received: Received,
        checkpoint: keras.callbacks.Callback | None,
        workers: int,
    ) -> None:
        ender = StopAfterEpoch(received) if workers > 1 else RaiseAtBatchEnd(received)
        self.callbacks = [*made.ordered, _RaiseWhenDiverged(made.finite), checkpoint or ender]
        self.interrupted = False
        self._model, self._ordered = model, made.ordered
        self._received, self._workers = received, workers

    def __enter__(self) -> "EarlyEnd":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self.interrupted = self._workers > 1 and self._received.first is not None
            return False
        if not isinstance(error, KeyboardInterrupt | _Diverged) or self._received.insists:
            return False
        if any(isinstance(callback, FittedBar) for callback in self._ordered):
            print()  # Keras's bar has not ended its line
        _end_training(self._model, self._ordered)
        self.interrupted = isinstance(error, KeyboardInterrupt)
        return True


def _end_training(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Call the callbacks that `fit` calls after the last epoch, if a step was trained."""
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
        received: The value that `hold_signals` yielded.
    """

    def __init__(self, received: Received) -> None:
        super().__init__()
        self.received = received


class RaiseAtBatchEnd(_OnSignal):
    """Raises `Interrupted` at the end of a batch, or before an epoch, once a signal has arrived.

    At this point the model is consistent. During a step, the optimizer's variables may be half
    updated, and TensorFlow prints and drops an exception that is raised in a destructor.
    """

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Raise, if a signal has arrived."""
        self.received.check()

    on_test_batch_end = on_epoch_begin = on_train_batch_end


class StopAfterEpoch(_OnSignal):
    """Ends the training of all workers after the current epoch, once a signal has arrived.

    If a single worker left within an epoch, the remaining workers would wait forever.
    """

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Stop, if a signal has arrived."""
        if self.received.first is not None:
            self.model.stop_training = True

    on_epoch_end = on_train_batch_end


class _Diverged(Exception):  # noqa: N818 - never leaves `with EarlyEnd`
    """The loss is not finite."""


class _RaiseWhenDiverged(ResumableCallback):
    """Raises if the loss is not finite: Keras would validate, and complete the epoch."""

    def __init__(self, stop: StopAtNonFinite) -> None:
        super().__init__()
        self.stop = stop

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.stop.found is not None:
            raise _Diverged
