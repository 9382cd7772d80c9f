"""Signals: Ctrl-C, SIGTERM, SIGHUP and preemption, raised at once or held until work is complete.

`checkpoint/fit_checkpoints.py` saves a checkpoint after a signal.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from .errors import UserError

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: from Ctrl-C, a batch system or `kill`, a closed terminal."""


class Interrupted(KeyboardInterrupt):
    """A signal of `ENDING_SIGNALS` arrived; `except KeyboardInterrupt` catches it."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


class ReceivedSignals:
    """The signals of `ENDING_SIGNALS` that arrived inside `raise_signals` or `hold_signals`.

    A second signal asks the program to end at once.
    """

    def __init__(self, *, holds: bool, first: signal.Signals | None = None) -> None:
        self.first = first
        self.has_second = False
        self._holds = holds
        self._process = os.getpid()

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived."""
        if self.first is not None:
            raise Interrupted(self.first)

    def _receive(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            # A process that was forked inside the block inherits the handler, but not the work.
            if number == signal.SIGINT:
                signal.default_int_handler(number, frame)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.has_second = self.first is not None
        self.first = self.first or signal.Signals(number)
        if self.has_second or not self._holds:
            raise Interrupted(number)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Return the signal behind an exception; Python's own `KeyboardInterrupt` means Ctrl-C."""
    return error.signal if isinstance(error, Interrupted) else signal.SIGINT


def raise_signals() -> AbstractContextManager[ReceivedSignals]:
    """Raise `Interrupted` in the main thread when a signal of `ENDING_SIGNALS` arrives.

    The exception may be lost if the signal arrives in a destructor, or while a library imports a
    module. `first` still has the signal, also the `first` of a `hold_signals` that begins later
    inside the block.
    """
    return _handle_signals(holds=False)


def hold_signals(*more: signal.Signals) -> AbstractContextManager[ReceivedSignals]:
    """Hold the first signal of `ENDING_SIGNALS`, so that the block can complete its work.

    A second signal raises `Interrupted` at once.
    """
    return _handle_signals(*more, holds=True)


@contextlib.contextmanager
def _handle_signals(*more: signal.Signals, holds: bool) -> Iterator[ReceivedSignals]:
    # Only the main thread receives signals.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (*ENDING_SIGNALS, *more) if is_main else ()
    before = {number: signal.getsignal(number) for number in numbers}
    # The caller's own handlers stay, and ignored signals stay ignored, as under `nohup`.
    handlers = {number: handler for number, handler in before.items() if _is_default(handler)}
    outer = next(filter(None, map(_receiver_of, handlers.values())), None)
    received = ReceivedSignals(holds=holds, first=outer.first if outer else None)
    try:
        for number in handlers:
            signal.signal(number, received._receive)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_default(handler: Any) -> bool:
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    # A handler that `ends_the_process` does as the default does, but prints a message.
    ends_process = getattr(handler, "ends_the_process", False)
    return handler in defaults or ends_process or _receiver_of(handler) is not None


def _receiver_of(handler: Any) -> ReceivedSignals | None:
    receiver = getattr(handler, "__self__", None)
    return receiver if isinstance(receiver, ReceivedSignals) else None


class PreemptionSignals:
    """Records the first signal; a second signal ends the process at once.

    Only the main thread of a process receives signals; in a different thread, `install` changes no
    handler. If the caller of `fit` holds the signals, `ReceivedSignals` takes the place of this
    class: its `first` is the same, but its `check` raises `Interrupted`.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.first: signal.Signals | None = None
        self._signals = [_find_signal(name) for name in names]
        self._before: dict[signal.Signals, Any] = {}
        self._process = os.getpid()

    def check(self) -> None:
        """Raise `SystemExit` with exit code 128 + signal number if a signal has arrived."""
        if self.first is not None:
            raise SystemExit(128 + self.first)

    def install(self) -> None:
        """Handle the signals from now on."""
        self.first, self._process = None, os.getpid()
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before[number] = signal.signal(number, self._record)

    def uninstall(self) -> None:
        """Handle the signals as before `install`; a second call does nothing."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def _record(self, number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != self._process:
            # A data worker that was forked inherits the handler; SIGTERM has to end it.
            self.uninstall()
            os.kill(os.getpid(), number)
        elif self.first is None:
            self.first = signal.Signals(number)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _find_signal(name: str) -> signal.Signals:
    if name not in signal.Signals.__members__:
        raise UserError(
            f'unknown signal {name!r} in preemption: pass names such as "SIGTERM", "SIGUSR1"'
        )
    return signal.Signals[name]
