"""`passed_signals`: signals that the launcher gets, as events for its loop."""

import contextlib
import queue
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def passed_signals(events: "queue.SimpleQueue[Any]") -> Iterator[None]:
    """Put each signal of `PASSED` into a queue, as long as the block lasts.

    Signals that this process ignores, as SIGHUP under `nohup`, stay ignored.

    Args:
        events: May be written to by a signal's handler, unlike other queues.
    """

    def note(number: int, _: FrameType | None) -> None:
        events.put(signal.Signals(number))

    before = {number: signal.getsignal(number) for number in PASSED}
    taken = {number: one for number, one in before.items() if one is not signal.SIG_IGN}
    try:
        for number in taken:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
