"""Signals: Ctrl-C, SIGTERM and SIGHUP, raised or held until the work at hand is whole; preemption.

What saves a checkpoint after one is `checkpoint/fit_checkpoints.py`.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any

from .errors import UserError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: Ctrl-C, a batch system or `kill`, a closed terminal."""


class Interrupted(KeyboardInterrupt):
    """One of `ENDING` arrived; what handles Ctrl-C handles the others too.

    Args:
        number: Of the signal.

    Attributes:
        signal: The signal.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


class Received:
    """What has arrived of `ENDING`, inside of `raise_signals` or `hold_signals`.

    Attributes:
        first: The first signal; `None` if there was none.
        insists: Whether another one followed it, which asks to end at once.
    """

    def __init__(self, *, holds: bool, first: signal.Signals | None = None) -> None:
        self.first = first
        self.insists = False
        self._holds = holds
        self._process = os.getpid()

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived."""
        if self.first is not None:
            raise Interrupted(self.first)

    def _receive(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A process forked inside of the block has inherited the handler, not the work.
            if number == signal.SIGINT:
                signal.default_int_handler(number, frame)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.insists = self.first is not None
        self.first = self.first or signal.Signals(number)
        if self.insists or not self._holds:
            raise Interrupted(number)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """The signal behind an exception; Python's own is Ctrl-C."""
    return error.signal if isinstance(error, Interrupted) else signal.SIGINT


@contextlib.contextmanager
def raise_signals() -> Iterator[Received]:
    """Have a signal of `ENDING` raise `Interrupted` in the main thread.

    An exception that Python raises in a destructor, or while a library imports another, may be
    lost. `first` remembers the signal, and so does a `hold_signals` inside of this.

    Yields:
        What has arrived.
    """
    with _handled(holds=False) as received:
        yield received


@contextlib.contextmanager
def hold_signals(*more: signal.Signals) -> Iterator[Received]:
    """Hold the first signal of `ENDING`, for the block to end where its work is whole.

    A second signal raises `Interrupted` at once.

    Args:
        more: Other signals to hold.

    Yields:
        What has arrived.
    """
    with _handled(*more, holds=True) as received:
        yield received


@contextlib.contextmanager
def _handled(*more: signal.Signals, holds: bool) -> Iterator[Received]:
    # Only the main thread receives signals.
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (*ENDING, *more)} if is_main else {}
    # Handlers of the caller's own stay, and what is ignored, as under `nohup`.
    taken = {number: handler for number, handler in before.items() if _is_default(handler)}
    outer = next((of for of in map(_received_by, taken.values()) if of is not None), None)
    received = Received(holds=holds, first=outer.first if outer else None)
    try:
        for number in taken:
            signal.signal(number, received._receive)
        yield received
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _is_default(handler: Any) -> bool:
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    is_default = getattr(handler, "ends_the_process", False)  # as none would, but in other words
    return handler in defaults or _received_by(handler) is not None or is_default


def _received_by(handler: Any) -> Received | None:
    of = getattr(handler, "__self__", None)
    return of if isinstance(of, Received) else None


class PreemptionSignals:
    """Notes the first signal, and lets a second one end the process at once.

    Only a process's main thread gets signals; in another thread nothing is changed. A program that
    holds signals itself has `Received` instead, with the same `first` and `check`.

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
