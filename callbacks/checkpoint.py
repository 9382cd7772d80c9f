"""`Checkpoint`: save training so that it can be killed at any time and resumed exactly."""

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import keras

from .._upstream import all_patches
from .._upstream.hooks import is_chief
from .._upstream.running_fits import running_fit
from ..checkpoint.checkpoint_options import CheckpointOptions
from ..checkpoint.fit_checkpoints import FitCheckpoints
from ..errors import UserError
from ..remote import folder_address
from .resumable import ResumableCallback


class Checkpoint(ResumableCallback):
    """Saves training as it proceeds, and resumes it exactly where it was killed.

    Run the same program again, and `fit` continues. Weights, optimizer, metrics, history, random
    numbers, the position in the data and the state of callbacks equal the values of an
    uninterrupted run: bit for bit on the same machine with the same versions, replicas and threads,
    and up to rounding on a different number of replicas.

    A checkpoint is a file in the safetensors format. A thread writes it from a copy, completely or
    not at all. The file name contains the SHA-256 of the content; if the file is damaged, the
    previous checkpoint is used. Weights with NaN or infinite values are never saved: training then
    stops with `kdist.errors.NonFiniteWeightsError`, which names the step and the first variable
    with a NaN or infinite value. In addition to the times that you set, training is saved at the
    end of each epoch, unless epochs are so short that saving would take more than 1 % of the time.
    The end of the last epoch is always saved.

    With several workers, pass this callback to `fit` in every worker. Only the chief reads and
    writes the folder; it sends the state that is restored to all workers. After a signal to any
    worker, all workers end after the same step.

    Args:
        folder: Folder for the checkpoints of this training only; created if it does not exist. The
            address of a remote storage, such as `"s3://bucket/run"`, needs the extra
            `kdist[remote]` and the storage's package.
        every_seconds: Seconds from one save to the next; `None` for no saves by time.
        every_steps: Steps from one save to the next; `None` for no saves by steps.
        keep: Number of checkpoints to keep.
        resume: `"auto"` continues from the newest checkpoint, or starts from the beginning without
            a checkpoint; `"must"` requires a checkpoint; `"never"` requires a folder without
            checkpoints.
        preemption: With True, SIGTERM saves training at the end of the step, and ends the process
            with exit code 143. After the last step, too, the process ends: the code after `fit`
            runs when you start the program again. A second signal ends the process at once. To
            handle different signals, pass their names, such as `["SIGTERM", "SIGUSR1"]`; False
            leaves signals alone.
        verbose: 0 prints only problems.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: An argument is invalid. When training begins: the folder cannot be written, is in
            use by another process, or has checkpoints of a different model, optimizer or data set.

    Examples:
        ```python
        keras.utils.set_random_seed(1)
        checkpoint = Checkpoint("checkpoints")  # before the call of `fit`, not inside it
        model.fit(x, y, epochs=40, callbacks=[checkpoint])
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
        verbose: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(verbose=verbose)
        self.options = CheckpointOptions(
            folder=folder_address("folder", folder),
            every_seconds=every_seconds,
            every_steps=every_steps,
            keep=keep,
            resume=resume,
            preemption=preemption,
            clock=clock,
        )
        self._fit: FitCheckpoints | None = None
        all_patches.install()

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Find the checkpoint to resume, and restore it."""
        if any(isinstance(callback, Checkpoint) for callback in callbacks):
            raise UserError(
                "fit received several Checkpoint callbacks, each of which would restore its own"
                " training: pass one; for a second copy of the checkpoints, copy the folder"
            )
        if running_fit(self.model) is None:
            raise UserError(
                "Checkpoint was created inside the call of fit, too late to record the order of the"
                " data: create it before the call, as in checkpoint = Checkpoint(...)"
            )
        self._fit = FitCheckpoints(self.model, self.params, callbacks, self.options, self._announce)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore state that the `on_train_begin` of all callbacks has reset."""
        lines = self._lines  # printed since `fit_begins`
        super().on_train_begin(logs)
        self._lines = lines
        if self._fit is not None:
            self._fit.train_begins()
            self.print_line(self._fit.greeting)
        self._flush()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Restore state that the beginning of the epoch has reset."""
        super().on_epoch_begin(epoch, logs)
        if self._fit is not None:
            self._fit.epoch_begins(epoch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        if self._fit is not None:
            self._fit.step_ends(self.steps_of_epoch_after(batch), logs or {})

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Copy the state that validation will reset."""
        super().on_test_begin(logs)
        if self._fit is not None:
            self._fit.validation_begins()

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Save after a signal."""
        super().on_test_batch_end(batch, logs)
        if self._fit is not None:
            self._fit.validation_step_ends()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Release the state that was kept for validation."""
        super().on_test_end(logs)
        if self._fit is not None:
            self._fit.validation_ends()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._fit is not None:
            self._fit.epoch_ends(epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """End the process after a signal in the last step."""
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
        """Print a line, from any thread, when no progress bar is open; also with `verbose=0`."""
        if is_chief(self.model):
            self._lines.append(line)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_fit": None}
