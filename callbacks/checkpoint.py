"""`Checkpoint`: save a training so that it can be killed anywhere and resumed exactly."""

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import keras

from .. import _upstream
from ..checkpoints.fit_checkpoints import FitCheckpoints
from ..checkpoints.options import CheckpointOptions
from ..errors import UserError
from .resumable import ResumableCallback


class Checkpoint(ResumableCallback, _upstream.FitObserver):
    """Saves a training as it proceeds, and resumes it exactly where it was killed.

    Run the same program again, and `fit` continues: weights, optimizer, metrics, history, random
    numbers, place in the data and the state of callbacks are those of the training that was never
    interrupted. On the same machine, with the same versions, replicas and threads, they are equal
    bit for bit; on another number of replicas up to rounding.

    A checkpoint is one file, in the safetensors format, that a thread writes from a copy. It is
    there as a whole or not at all; its name has its SHA-256, and of a damaged one the one before
    is taken. Weights with a NaN or an infinity are never saved. Beside the times asked for, a
    training is saved at the end of an epoch, unless epochs are so short that saving would take
    more than 1 % of the time, and always at the end of the last.

    Of several workers, all have this callback. The chief alone uses the folder, and sends the
    others what they restore; after a signal to any of them, all are ended after the same step.

    Args:
        folder: Where the checkpoints are, of this training alone; made where it is missing.
        every_seconds: Seconds from one save to the next; None for none by time.
        every_steps: Steps from one save to the next; None for none by steps.
        keep: How many checkpoints are kept.
        resume: `"auto"` continues from the newest checkpoint and begins where there is none;
            `"must"` requires one; `"never"` requires a folder without any.
        preemption: True saves after SIGTERM, at the end of the step, and ends the process with
            status 143, also where that was the last step: what follows `fit` runs when the program
            is run again. A second signal ends it at once. For other signals pass their names, such
            as `["SIGTERM", "SIGUSR1"]`; False leaves signals alone.
        on_nonfinite: What happens when weights are NaN or infinite. `"stop"` raises
            `kdist.checkpoints.NonFiniteWeightsError`, which names the step and the first such
            variable. `"rollback"` restores the newest checkpoint and continues with the next
            batches; it stops after three times from the same checkpoint.
        rollback_rate: Factor on the learning rate at each rollback.
        verbose: 0 prints nothing but what went wrong.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: If an argument is invalid; or, when training begins, if the folder cannot be
            written, is in use by another process, or has checkpoints of another model, optimizer
            or data set.

    Example:
        ```python
        keras.utils.set_random_seed(1)
        model.fit(x, y, epochs=40, callbacks=[Checkpoint("checkpoints")])
        ```
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every_seconds: float | None = 600.0,
        every_steps: int | None = None,
        keep: int = 3,
        resume: Literal["auto", "must", "never"] = "auto",
        preemption: bool | Collection[str] = True,
        on_nonfinite: Literal["stop", "rollback"] = "stop",
        rollback_rate: float = 1.0,
        verbose: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(verbose=verbose)
        self.options = CheckpointOptions(
            folder=folder,
            every_seconds=every_seconds,
            every_steps=every_steps,
            keep=keep,
            resume=resume,
            preemption=preemption,
            on_nonfinite=on_nonfinite,
            rollback_rate=rollback_rate,
            clock=clock,
        )
        self._fit: FitCheckpoints | None = None
        _upstream.patches.install()

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Find what to resume, and restore it."""
        if any(isinstance(one, Checkpoint) for one in callbacks):
            raise UserError(
                "fit received several Checkpoint callbacks, each of which would restore its own"
                " training: pass one, and copy its files for a copy elsewhere"
            )
        self._fit = FitCheckpoints(self.model, self.params, callbacks, self.options, self._announce)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore what the `on_train_begin` of other callbacks has reset."""
        lines = self._lines  # since `fit_begins`
        super().on_train_begin(logs)
        self._lines = lines
        if self._fit is not None:
            self._fit.train_begins()
            self.print_line(self._fit.greeting)
        self._flush()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Restore what the beginning of an epoch has reset."""
        super().on_epoch_begin(epoch, logs)
        if self._fit is not None:
            self._fit.epoch_begins(epoch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save where that is due."""
        super().on_train_batch_end(batch, logs)
        if self._fit is not None:
            self._fit.step_ends(self.steps_done(batch), logs or {})

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Keep what validation resets."""
        super().on_test_begin(logs)
        if self._fit is not None:
            self._fit.validation_begins()

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save after a signal."""
        super().on_test_batch_end(batch, logs)
        if self._fit is not None:
            self._fit.validation_step_ends()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Release what validation has reset."""
        super().on_test_end(logs)
        if self._fit is not None:
            self._fit.validation_ends()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save at the end of an epoch."""
        super().on_epoch_end(epoch, logs)
        if self._fit is not None:
            self._fit.epoch_ends(epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """End the process after a signal that came in the last step."""
        super().on_train_end(logs)
        if self._fit is not None:
            self._fit.train_ends()

    def fit_ended(self) -> None:
        """Release the folder and the signals."""
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.end()
        self._flush()

    def _announce(self, line: str) -> None:
        """Print a line also with `verbose=0`, once no progress bar is open; in any thread."""
        if _upstream.is_chief(self.model):
            self._lines.append(line)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_fit": None}
