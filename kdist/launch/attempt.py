"""`run_workers`: this machine's workers, from their start until none of them is left."""

import dataclasses
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .worker import Worker

# What workers get to print why they ended, when another one has failed: they cannot go on.
_AFTER_FAILURE_SECONDS = 5.0
# The signals that only tell a program something, and do not ask it to end.
_MESSAGES = (signal.SIGUSR1, signal.SIGUSR2)
# How soon it is noticed that nobody reads the output any more.
_POLL_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptOutcome:
    """How the workers ended.

    Attributes:
        code: 0 if all did what they should, otherwise the exit code of the first that failed; 1 if
            nobody reads the output any more.
        failed: The worker that failed first; `None` if none did.
        seconds: From the start until `failed` ended, or all of them.
        signal: That this process got; `None` for none.
    """

    code: int
    failed: Worker | None
    seconds: float
    signal: signal.Signals | None


def run_workers(
    starts: Sequence[Callable[[], Worker]],
    *,
    grace: float,
    events: "queue.SimpleQueue[Any]",
) -> AttemptOutcome:
    """Start workers, and return when all have ended.

    A signal is passed on to all. When one fails, the others are ended. Whatever happens, none is
    left, nor what they have started.

    Args:
        starts: Each starts a worker.
        grace: Seconds from a signal until workers that still run are killed.
        events: Receives the signals that this process gets.
    """
    began = time.monotonic()
    workers: list[Worker] = []
    group = _Group(workers, grace)
    try:
        for start in starts:
            workers.append(start())
            threading.Thread(target=_wait, args=(workers[-1], events), daemon=True).start()
        while any(worker.code is None for worker in workers):
            group.handle(_next(events, group.seconds_left()))
    finally:
        for worker in workers:
            worker.kill()
            worker.end_started()
    failed = group.first_failed()
    ended = failed.ended_at if failed else time.monotonic()
    return AttemptOutcome(
        code=exit_code(failed) if failed else int(group.lost_output),
        failed=failed,
        seconds=ended - began,
        signal=group.signal,
    )


def exit_code(worker: Worker) -> int:
    """The exit code as a shell has it: 128 and the number of the signal that killed a process."""
    code = worker.code or 0
    return 128 - code if code < 0 else code


class _Group:
    """What happens to workers that run."""

    def __init__(self, workers: list[Worker], grace: float) -> None:
        self.signal: signal.Signals | None = None
        self.lost_output = False
        self._workers = workers
        self._grace = grace
        self._kill_at: float | None = None
        self._ended_at: float | None = None  # when this process ended the others

    def seconds_left(self) -> float:
        """Seconds until there is something to do."""
        if self._kill_at is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, self._kill_at - time.monotonic()))

    def handle(self, event: Any) -> None:
        """Handle a signal, a worker that has ended, or that time has passed."""
        if isinstance(event, signal.Signals):
            self._pass_on(event)
        elif isinstance(event, Worker) and event.code and event in self._workers:
            # That of an attempt before may come late.
            self._end_others(_AFTER_FAILURE_SECONDS)
        elif any(worker.output.is_closed for worker in self._workers):  # as under `| head`
            self.lost_output = True
            self._end_others(self._grace)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for worker in self._workers:
                worker.kill()

    def first_failed(self) -> Worker | None:
        """The worker whose error was the cause: the others lost their connection to it."""
        failed = [worker for worker in self._workers if worker.code and self._has_failed(worker)]
        return min(failed, key=self._how_late, default=None)

    def _has_failed(self, worker: Worker) -> bool:
        """Whether a worker did not end only because it was told to."""
        was_told = self._ended_at is not None and worker.ended_at > self._ended_at
        return not was_told or worker.is_stopped or worker.failed_at is not None

    def _was_lost(self, worker: Worker) -> bool:
        """Whether somebody else has ended a worker, or made it stand still."""
        was_told = self.signal is not None or (
            self._ended_at is not None and worker.ended_at > self._ended_at
        )
        return worker.is_stopped or (not was_told and (worker.code or 0) < 0)

    def _how_late(self, worker: Worker) -> tuple[bool, float]:
        """Order workers by when they failed, those last that have only lost another one."""
        if self._was_lost(worker):  # which no error of others does
            return False, 0.0
        at = worker.failed_at
        return worker.output.lost_connection(), worker.ended_at if at is None else at

    def _pass_on(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.send(number)
        if number in _MESSAGES:
            return
        insists = self.signal is not None
        self.signal = self.signal or number
        self._kill_by(time.monotonic() + (0.0 if insists else self._grace))

    def _end_others(self, seconds: float) -> None:
        if self._ended_at is not None or self.signal is not None:
            return
        self._ended_at = time.monotonic()
        for worker in self._workers:
            if worker.stands_still():
                worker.kill()
            worker.send(signal.SIGTERM)
        self._kill_by(self._ended_at + min(seconds, self._grace))

    def _kill_by(self, at: float) -> None:
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)


def _next(events: "queue.SimpleQueue[Any]", seconds: float) -> Any:
    try:
        return events.get(timeout=seconds)
    except queue.Empty:
        return None


def _wait(worker: Worker, events: "queue.SimpleQueue[Any]") -> None:
    worker.wait()
    events.put(worker)
