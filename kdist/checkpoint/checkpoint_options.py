"""`CheckpointOptions`: the checked arguments of `Checkpoint`."""

import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any, Literal

from ..arguments import number_within, positive_integer
from ..errors import UserError
from ..remote import RemoteFolder
from ..signals import PreemptionSignals, ReceivedSignals

Resume = Literal["auto", "must", "never"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Times and place of checkpoints, and the way to resume from them.

    The first attributes are the arguments of `kdist.callbacks.Checkpoint`; `kdist train` sets the
    attributes that are listed here.

    Attributes:
        held_signals: Signals that the caller holds; a signal saves the training and raises
            `Interrupted`.
        data: Description of the data, compared when the training is resumed.
        rate_may_differ: Whether a training may be resumed with a different learning rate.
        remote_run: The remote folder of a run, whose local copy contains `folder`; uploaded after
            each checkpoint.
    """

    folder: str | os.PathLike[str]
    every_seconds: float | None
    every_steps: int | None
    keep: int
    resume: Resume
    preemption: bool | Collection[str]
    clock: Callable[[], float]
    held_signals: ReceivedSignals | None = None
    data: str | None = None
    rate_may_differ: bool = False
    remote_run: RemoteFolder | None = None

    def __post_init__(self) -> None:
        if self.every_seconds is not None:
            hint = "pass the seconds between two saves, or None not to save by time"
            number_within("every_seconds", self.every_seconds, above=0, is_finite=False, hint=hint)
        if self.every_steps is not None:
            hint = "pass the number of steps between two saves, or None not to save by steps"
            positive_integer("every_steps", self.every_steps, hint=hint)
        positive_integer("keep", self.keep, hint="pass how many checkpoints to keep")
        if self.resume not in ("auto", "must", "never"):
            raise UserError(
                f'resume is {self.resume!r}, but has to be one of "auto", "must", "never"'
            )
        self.make_signals()

    @property
    def ends_by_signal(self) -> bool:
        """Whether any signal saves and ends the training."""
        return bool(self.preemption) or self.held_signals is not None

    def shared_values(self) -> dict[str, Any]:
        """Return the options that must be equal on all workers.

        The remaining options are taken from the chief.
        """
        return {
            "every_steps": self.every_steps,
            "whether a signal ends the training": self.ends_by_signal,
        }

    def make_signals(self) -> PreemptionSignals:
        """Create the recorder of the signals that save and end the training."""
        if isinstance(self.preemption, bool):
            return PreemptionSignals(("SIGTERM",) if self.preemption else ())
        return PreemptionSignals(self.preemption)
