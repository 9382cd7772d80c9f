"""`CheckpointOptions`: what `Checkpoint` was given, checked; the signals that end a training."""

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

from ..arguments import positive_integer, positive_number
from ..errors import UserError
from ..signals import Interrupted, Received


class PreemptionSignals:
    """Notes the first signal, and lets a second one end the process at once.

    Only a process's main thread gets signals; in another thread nothing is changed.

    Args:
        names: Such as `["SIGTERM", "SIGUSR1"]`.

    Attributes:
        received: The signal that came, or None.

    Raises:
        UserError: There is no signal of such a name.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.received: signal.Signals | None = None
        self._signals = [_signal(name) for name in names]
        self._before: dict[signal.Signals, Any] = {}
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """The name of the signal that came."""
        return self.received.name if self.received else ""

    @property
    def exit_status(self) -> int:
        """What a shell says of a process that the signal has ended, such as 143."""
        return 128 + int(self.received or 0)

    def agree(self, number: signal.Signals) -> None:
        """Take a signal that another worker has got for this one's."""
        self.received = self.received or number

    def end(self) -> NoReturn:
        """End the process, once the training is saved."""
        raise SystemExit(self.exit_status)

    def install(self) -> None:
        """Handle the signals from now on."""
        self.received, self._process = None, os.getpid()
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
        elif self.received is None:
            self.received = signal.Signals(number)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class HeldSignals:
    """The signals of a program that holds them itself, with `kdist.signals.hold_signals`.

    Args:
        held: What it yielded.
    """

    def __init__(self, held: Received) -> None:
        self._held = held

    @property
    def received(self) -> signal.Signals | None:
        """The signal that came, or None."""
        return self._held.first

    @property
    def name(self) -> str:
        """The name of the signal that came."""
        return self.received.name if self.received else ""

    def agree(self, number: signal.Signals) -> None:
        """Take a signal that another worker has got for this one's."""
        self._held.first = self._held.first or number

    def end(self) -> NoReturn:
        """Raise `Interrupted`, once the training is saved."""
        raise Interrupted(self.received or signal.SIGTERM)

    def install(self) -> None:
        """Leave the handlers as they are."""

    def uninstall(self) -> None:
        """Leave the handlers as they are."""


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

    def preemption_signals(self) -> PreemptionSignals | HeldSignals:
        """Make what notes the signals after which the training is saved and ended."""
        if self.held is not None:
            return HeldSignals(self.held)
        if isinstance(self.preemption, bool):
            return PreemptionSignals(("SIGTERM",) if self.preemption else ())
        return PreemptionSignals(self.preemption)
