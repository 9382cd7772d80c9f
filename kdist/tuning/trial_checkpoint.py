"""`TrialCheckpoint`: an interrupted trial continues where it was, with the search that resumes."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import keras

from ..callbacks import Checkpoint
from ..checkpoints.store import generations
from ..errors import UserError
from ..signals import Received

_EVERY_SECONDS = 300.0
_KEEP = 2  # of which one may be damaged


class TrialCheckpoint(Checkpoint):
    """Saves one execution of a trial as it proceeds, and continues one that was interrupted.

    After a signal it saves at the end of the step, and raises `Interrupted`.

    Args:
        folder: That of `checkpoint_folder`.
        held: What `hold_signals` yielded.
    """

    def __init__(self, folder: Path, *, held: Received) -> None:
        super().__init__(
            folder, every_seconds=_EVERY_SECONDS, keep=_KEEP, preemption=False, verbose=0
        )
        # Nobody asked for checkpoints, and most trials are never resumed.
        self.options = dataclasses.replace(self.options, held=held, warns=False)

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Restore the execution; one that cannot be continued begins anew.

        Its checkpoints may be damaged, or the user's model may have changed meanwhile.
        """
        try:
            super().fit_begins(callbacks)
        except UserError:
            shutil.rmtree(self.options.path, ignore_errors=True)
            super().fit_begins(callbacks)


def checkpoint_folder(trial: Path, execution: int) -> Path:
    """Return the folder of an execution's checkpoints.

    Args:
        trial: The trial's folder.
        execution: From 0.
    """
    return trial / "checkpoints" / f"execution-{execution}"


def is_resumed(trial: Path, execution: int) -> bool:
    """Whether an execution of a trial continues from a checkpoint."""
    return bool(generations(checkpoint_folder(trial, execution)))


def remove_checkpoints(trial: Path) -> None:
    """Remove the checkpoints of a trial that has ended."""
    shutil.rmtree(trial / "checkpoints", ignore_errors=True)
