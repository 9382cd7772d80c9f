"""Keras callbacks of a run: its checkpoints, and its end at a signal or a loss that diverges."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from .._upstream.hooks import is_chief
from .._upstream.optimizers import steps_taken
from .._upstream.worker_callbacks import runs_on_chief_only
from ..callbacks import Checkpoint, StopAtNonFinite
from ..callbacks.resumable import ResumableCallback
from ..signals import ReceivedSignals
from .config import TrainConfig
from .run_folder import RunFolder


class RunCheckpoint(Checkpoint):
    """Saves a run of `kdist train` as it proceeds, and continues a resumed run.

    After a signal that the run holds, the callback saves the training at the end of the step.

    Args:
        config: The settings; `checkpoint_every` is not `None`.
        folder: The run folder.
        data: Description of the data, or `None`. A resumed run must have the same description.
        held: The signals that the run holds.
        begin: Called when the run is certain to be trained, before anything is written.
        verbose: 0 prints only failures.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        data: str | None,
        *,
        held: ReceivedSignals,
        begin: Callable[[], None],
        verbose: int,
    ) -> None:
        super().__init__(
            folder.checkpoints,
            every_seconds=config.checkpoint_every,
            keep=config.keep,
            resume="auto" if folder.is_resumed else "never",
            preemption=False,
            verbose=verbose,
        )
        self.options = dataclasses.replace(
            self.options,
            held_signals=held,
            data=data,
            remote_run=folder.remote,
            rate_may_differ=True,  # more epochs change the schedule
        )
        self._begin = begin

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Find the checkpoint to resume, restore it, and call `begin`."""
        super().fit_begins(callbacks)
        self._begin()

    def fit_ended(self) -> None:
        """Release the folder, and report the save below an unfinished progress bar."""
        if self._lines and self.params.get("verbose") == 1:
            print()
        super().fit_ended()


def end_training(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Call the callbacks that `fit` calls after the last epoch, if a step was trained."""
    if not steps_taken(model.optimizer):
        return
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            callback.on_test_end()  # does nothing, unless validation was interrupted
    model.optimizer.finalize_variable_values(model.trainable_weights)
    chief = is_chief(model)
    for callback in callbacks:
        if chief or not runs_on_chief_only(callback):
            callback.on_train_end()


class RaiseAtBatchEnd(keras.callbacks.Callback):
    """Raises `Interrupted` at the end of a batch, or before an epoch, once a signal has arrived.

    At this point the model is consistent. During a step, the optimizer's variables may be half
    updated, and TensorFlow prints and drops an exception that is raised in a destructor.
    """

    def __init__(self, received: ReceivedSignals) -> None:
        super().__init__()
        self.received = received

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.received.check()

    on_test_batch_end = on_epoch_begin = on_train_batch_end


class StopAfterEpoch(keras.callbacks.Callback):
    """Ends the training of all workers after the current epoch, once a signal has arrived.

    If a single worker left within an epoch, the remaining workers would wait forever.
    """

    def __init__(self, received: ReceivedSignals) -> None:
        super().__init__()
        self.received = received

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.received.first is not None:
            self.model.stop_training = True

    on_epoch_end = on_train_batch_end


class DivergedError(Exception):
    """The loss is not finite; the run catches it around `fit`."""


class RaiseWhenDiverged(ResumableCallback):
    """Raises `DivergedError` at the step whose loss is not finite.

    Otherwise Keras would first finish the epoch and validate.
    """

    def __init__(self, stop: StopAtNonFinite) -> None:
        super().__init__()
        self.stop = stop

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        if self.stop.found is not None:
            raise DivergedError
