"""`RunCheckpoint`: the checkpoints of a run, in its folder."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

from ..callbacks import Checkpoint
from ..data import ImageData
from ..runs.run_folder import RunFolder
from ..signals import Received
from .config import TrainConfig
from .plan import TrainPlan


class RunCheckpoint(Checkpoint):
    """Saves a run of `kdist train` as it proceeds, and continues one that is resumed.

    After a signal that the run holds, the training is saved at the end of the step.

    Args:
        config: The settings; `checkpoint_every` is not `None`.
        folder: The run folder.
        data: The images, which have to be those of the run that is resumed.
        held: The signals that the run holds.
        begin: Called once it is certain that the run can be trained, before anything is written.
        verbose: 0 prints nothing but what went wrong.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        data: ImageData,
        *,
        held: Received,
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
            held=held,
            data=_described(data),
            any_rate=True,  # more epochs have another schedule; the settings were compared
        )
        self._begin = begin

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Find what to resume, and restore it."""
        super().fit_begins(callbacks)
        self._begin()

    def fit_ended(self) -> None:
        """Let go of the folder, and say what was saved below a bar that has not ended its line."""
        if self._lines and self.params.get("verbose") == 1:
            print()
        super().fit_ended()


def _described(data: ImageData) -> str:
    """The images that are trained, wherever they were found."""
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels):
        digest.update(np.ascontiguousarray(array).data)
    return f"{len(data.train_images)} images with SHA-256 {digest.hexdigest()[:12]}"


def make_checkpoint(
    config: TrainConfig,
    plan: TrainPlan,
    folder: RunFolder,
    data: ImageData,
    *,
    held: Received,
    verbose: int,
) -> RunCheckpoint | None:
    """Make what saves a run, if its settings ask for it; it also calls `write_settings`.

    Args:
        config: The settings.
        plan: Batches and learning rate.
        folder: The run folder.
        data: The images.
        held: The signals that the run holds.
        verbose: As in `fit`; 0 prints nothing but what went wrong.
    """
    if config.checkpoint_every is None:
        return None
    return RunCheckpoint(
        config,
        folder,
        data,
        held=held,
        begin=lambda: write_settings(config, plan, folder),
        verbose=min(verbose, 1),
    )


def write_settings(config: TrainConfig, plan: TrainPlan, folder: RunFolder) -> None:
    """Write what a run is trained with, which has no result from now on until it ends.

    Raises:
        UserError: It cannot be written.
    """
    folder.remove_summary()
    if config.checkpoint_every is not None and not folder.is_resumed:
        folder.write_json("plan.json", dataclasses.asdict(plan))
    folder.write_json("config.json", config.to_dict())
