"""`PreemptionSignals`: a machine that is about to be taken away says so by a signal."""

import os
import signal
import threading
from collections.abc import Collection
from types import FrameType
from typing import Any, NoReturn

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
