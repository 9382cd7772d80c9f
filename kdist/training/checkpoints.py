"""`RunCheckpoint`: the checkpoints of a run, in its folder."""

import dataclasses
from collections.abc import Callable, Sequence

import keras

from ..callbacks import Checkpoint
from ..runs.run_folder import RunFolder
from ..signals import Received
from .config import TrainConfig
from .parts import RunParts
from .plan import TrainPlan


class RunCheckpoint(Checkpoint):
    """Saves a run of `kdist train` as it proceeds, and continues one that is resumed.

    After a signal that the run holds, the training is saved at the end of the step.

    Args:
        config: The settings; `checkpoint_every` is not `None`.
        folder: The run folder.
        data: Describes the data, which have to be those of the run that is resumed; or `None`.
        held: The signals that the run holds.
        begin: Called once it is certain that the run can be trained, before anything is written.
        verbose: 0 prints nothing but what went wrong.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        data: str | None,
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
            data=data,
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


def make_checkpoint(
    config: TrainConfig,
    parts: RunParts,
    folder: RunFolder,
    *,
    held: Received,
    verbose: int,
) -> RunCheckpoint | None:
    """Make what saves a run, if its settings ask for it; it also calls `write_settings`.

    Args:
        config: The settings.
        parts: What the run trains.
        folder: The run folder.
        held: The signals that the run holds.
        verbose: As in `fit`; 0 prints nothing but what went wrong.
    """
    if config.checkpoint_every is None:
        return None
    return RunCheckpoint(
        config,
        folder,
        parts.describe_data(),
        held=held,
        begin=lambda: write_settings(config, parts.plan, folder),
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
    folder.write_json("config.json", config.used())
