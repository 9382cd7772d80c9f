"""`CheckpointOptions`: what `Checkpoint` was given, checked; the signals that end a training."""

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from ..arguments import positive_integer, positive_number
from ..errors import UserError
from ..signals import Received


class PreemptionSignals:
    """Notes the first signal, and lets a second one end the process at once.

    Only a process's main thread gets signals; in another thread nothing is changed. A program that
    holds signals itself has `kdist.signals.Received` instead, with the same `first` and `check`.

    Args:
        names: Such as `["SIGTERM", "SIGUSR1"]`.

    Attributes:
        first: The signal that came, or None.

    Raises:
        UserError: There is no signal of such a name.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.first: signal.Signals | None = None
        self._signals = [_signal(name) for name in names]
        self._before: dict[signal.Signals, Any] = {}
        self._process = os.getpid()

    def check(self) -> None:
        """Raise `SystemExit` if a signal has come, with the exit code that a shell has for it."""
        if self.first is not None:
            raise SystemExit(128 + self.first)

    def install(self) -> None:
        """Handle the signals from now on."""
        self.first, self._process = None, os.getpid()
        if threading.current_thread() is threading.main_thread():
            for one in self._signals:
                self._before[one] = signal.signal(one, self._note)

    def uninstall(self) -> None:
        """Handle the signals as before `install`; a second call does nothing."""
        for one, before in self._before.items():
            signal.signal(one, signal.SIG_DFL if before is None else before)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != self._process:
            # A worker forked for the data has inherited the handler, and is ended by SIGTERM.
            self.uninstall()
            os.kill(os.getpid(), number)
        elif self.first is None:
            self.first = signal.Signals(number)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _signal(name: str) -> signal.Signals:
    if name not in signal.Signals.__members__:
        raise UserError(
            f'preemption has {name!r}, which is no signal: pass names such as "SIGTERM", "SIGUSR1"'
        )
    return signal.Signals[name]


Resume = Literal["auto", "must", "never"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """When and where checkpoints are saved, and what they are used for.

    The attributes are the arguments of `kdist.callbacks.Checkpoint`, and for kdist itself:

    Attributes:
        held: Signals that the caller holds: the training is saved, and `Interrupted` raised.
        data: What tells the data from others of as many steps.
        any_rate: Whether a training may be resumed with another learning rate.
        start_from: Folder of a training that this one continues, unless it has a checkpoint of its
            own. Nothing is written there.
        warns: Whether callbacks whose state cannot be saved are warned of.

    Raises:
        UserError: One of them is invalid.
    """

    folder: str | os.PathLike[str]
    every_seconds: float | None
    every_steps: int | None
    keep: int
    resume: Resume
    preemption: bool | Collection[str]
    clock: Callable[[], float]
    held: Received | None = None
    data: str | None = None
    any_rate: bool = False
    start_from: Path | None = None
    warns: bool = True

    def __post_init__(self) -> None:
        if self.every_seconds is not None:
            hint = "pass the seconds between two saves, or None for none by time"
            positive_number("every_seconds", self.every_seconds, hint=hint, finite=False)
        if self.every_steps is not None:
            hint = "pass the steps between two saves, or None for none by steps"
            positive_integer("every_steps", self.every_steps, hint=hint)
        positive_integer("keep", self.keep, hint="pass how many checkpoints to keep")
        if self.resume not in ("auto", "must", "never"):
            raise UserError(
                f'resume is {self.resume!r}, but has to be one of "auto", "must", "never"'
            )
        self.preemption_signals()

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def ends_by_signal(self) -> bool:
        """Whether there is a signal after which the training is saved and ended."""
        return bool(self.preemption) or self.held is not None

    def of_all_workers(self) -> dict[str, Any]:
        """Return what has to be the same on all workers; when and where to save, the chief says."""
        return {
            "every_steps": self.every_steps,
            "whether a signal ends the training": self.ends_by_signal,
        }

    def preemption_signals(self) -> PreemptionSignals:
        """Make what notes the signals after which the training is saved and ended."""
        if isinstance(self.preemption, bool):
            return PreemptionSignals(("SIGTERM",) if self.preemption else ())
        return PreemptionSignals(self.preemption)
