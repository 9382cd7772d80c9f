"""`run_workers`: this machine's workers, from start to end, and what they print, line by line."""

import collections
import contextlib
import dataclasses
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from .child import PIPE, TRACEBACK, Child, Share, last_error, shell_code, unquoted

# What workers get to print why they ended, when another one has failed: they cannot go on.
_AFTER_FAILURE_SECONDS = 5.0
# The signals that only tell a program something, and do not ask it to end.
MESSAGES = (signal.SIGUSR1, signal.SIGUSR2)
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *MESSAGES)
# How soon it is noticed that nobody reads the output any more.
_POLL_SECONDS = 1.0
_READ_SECONDS = 2.0
# From an error that nobody catches to the end of its process.
_LONGEST_END_SECONDS = 60.0
# Lines come as they are printed; a crash prints the stacks of all threads.
_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
# What TensorFlow raises on a worker that has lost another one.
_LOST_CONNECTION = re.compile(
    r"^\S*(UnavailableError|AbortedError|CancelledError|DeadlineExceededError|ConnectionError"
    r"|ConnectionResetError|ConnectionRefusedError)\b|Connection reset by peer|Socket closed"
    r"|heartbeat",
    re.MULTILINE,
)
_MOST_LINES = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkersOutcome:
    """How the workers ended.

    Attributes:
        code: 0 if all did what they should, otherwise the exit code of the first that failed; 1 if
            nobody reads the output any more.
        failed: The worker that failed first; `None` if none did.
        seconds: From the start until `failed` ended, or all of them.
        signal: That this process got; `None` for none.
        lost: The places of those that somebody else has killed, as the system does when memory runs
            out, or that stood still.
        answers: What a worker has said by `child.answer`.
    """

    code: int
    failed: "Worker | None"
    seconds: float
    signal: signal.Signals | None
    lost: tuple[int, ...]
    answers: Mapping[str, Any]


def run_workers(
    starts: "Sequence[Callable[[], Worker]]",
    *,
    grace: float,
    events: "queue.SimpleQueue[Any]",
) -> WorkersOutcome:
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
    failed = group.first_failed()
    ended = failed.ended_at if failed else time.monotonic()
    return WorkersOutcome(
        code=shell_code(failed.code or 0) if failed else int(group.lost_output),
        failed=failed,
        seconds=ended - began,
        signal=group.signal,
        lost=tuple(at for at, worker in enumerate(workers) if group.has_lost(worker)),
        answers=next((worker.answers for worker in workers if worker.answers), {}),
    )


@contextlib.contextmanager
def passed_signals(events: "queue.SimpleQueue[Any]") -> Iterator[None]:
    """Put each signal that workers are to get into a queue, as long as the block lasts.

    Signals that this process ignores, as SIGHUP under `nohup`, stay ignored.

    Args:
        events: May be written to by a signal's handler, unlike other queues.
    """

    def note(number: int, _: FrameType | None) -> None:
        events.put(signal.Signals(number))

    before = {number: signal.getsignal(number) for number in _PASSED}
    taken = {number: one for number, one in before.items() if one is not signal.SIG_IGN}
    try:
        for number in taken:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Group:
    """What happens to workers that run."""

    def __init__(self, workers: "list[Worker]", grace: float) -> None:
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

    def first_failed(self) -> "Worker | None":
        """The worker whose error was the cause: the others lost their connection to it."""
        failed = [worker for worker in self._workers if worker.code and self._has_failed(worker)]
        return min(failed, key=self._how_late, default=None)

    def _has_failed(self, worker: "Worker") -> bool:
        """Whether a worker did not end only because it was told to."""
        return not self._was_told(worker) or worker.is_stopped or worker.failed_at is not None

    def _was_told(self, worker: "Worker") -> bool:
        """Whether a worker may have ended because this process had it end, as others had failed.

        One that somebody else has killed may be seen after one that ends because it was lost.
        """
        is_killed_by_others = worker.code == -signal.SIGKILL and not worker.was_killed
        is_later = self._ended_at is not None and worker.ended_at > self._ended_at
        return is_later and not is_killed_by_others

    def _was_lost(self, worker: "Worker") -> bool:
        """Whether somebody else has ended a worker, or made it stand still."""
        was_told = self.signal is not None or self._was_told(worker)
        return worker.is_stopped or (not was_told and (worker.code or 0) < 0)

    def has_lost(self, worker: "Worker") -> bool:
        """Whether a worker was killed, or stood still, by no fault of its own."""
        is_killed = worker.code == -signal.SIGKILL
        return worker.is_stopped or (is_killed and self._was_lost(worker))

    def _how_late(self, worker: "Worker") -> tuple[bool, float]:
        """Order workers by when they failed, those last that have only lost another one."""
        if self._was_lost(worker):  # which no error of others does
            return False, 0.0
        at = worker.failed_at
        return worker.output.lost_connection(), worker.ended_at if at is None else at

    def _pass_on(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.send(number)
        if number in MESSAGES:
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


def _wait(worker: "Worker", events: "queue.SimpleQueue[Any]") -> None:
    worker.wait()
    events.put(worker)


class Worker:
    """A process that runs the user's program.

    Args:
        command: The program and its arguments.
        rank: Among all workers.
        environment: Besides that of this process.
        share: Its GPUs and cores.
        prefix: Put in front of each line that it prints.
        log: Its log file; `None` for none.

    Attributes:
        rank: Among all workers.
        code: Its exit code, as `Child` has it; `None` while it runs.
        ended_at: When it ended, by `time.monotonic`.
        output: What it prints.
        is_stopped: Whether a signal had stopped it, such as SIGSTOP, before it was killed.
        was_killed: Whether `kill` was called while it ran.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        rank: int,
        environment: Mapping[str, str],
        share: Share,
        prefix: str,
        log: Path | None,
    ) -> None:
        self.rank = rank
        self.code: int | None = None
        self.is_stopped = self.was_killed = False
        self.ended_at = 0.0
        # A variable that the user has set counts.
        own = {name: value for name, value in _VARIABLES.items() if name not in os.environ}
        self._child = Child(
            command, share=share, environment={**own, **environment}, output=PIPE, errors=PIPE
        )
        self.output = WorkerOutput(*self._child.streams, prefix=prefix.encode(), log=log)

    @property
    def answers(self) -> Mapping[str, Any]:
        """What it has said by `answer`."""
        return self._child.answers

    @property
    def failed_at(self) -> float | None:
        """When the traceback of its end began; `None` without one, or if it went on behind it."""
        at = self.output.failed_at
        return at if at is not None and self.ended_at - at < _LONGEST_END_SECONDS else None

    def last_error(self) -> str:
        """Return the error that it ended with: a traceback, or the last lines."""
        return self.output.last_error(has_traceback=self.failed_at is not None)

    def wait(self) -> None:
        """Wait for the process to end."""
        code = self._child.wait()
        self.ended_at = time.monotonic()
        self.code = code

    def stands_still(self) -> bool:
        """Whether a signal has stopped the process, which then handles no other signal."""
        self.is_stopped = self.code is None and self._child.is_stopped()
        return self.is_stopped

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        if self.code is None:
            self._child.send(number)

    def kill(self) -> None:
        """Kill the process and all that it has started; pass on its last lines."""
        self.was_killed = self.was_killed or self.code is None
        self._child.kill()
        self.output.join(_READ_SECONDS)


_whole_lines = threading.Lock()
_TRACEBACK_BYTES = tuple(start.encode() for start in TRACEBACK)


class WorkerOutput:
    """Copies a worker's two streams to this process's own, and into a log file.

    Args:
        output: The worker's standard output.
        errors: Its standard error.
        prefix: Put in front of each line.
        log: Log file of both streams; `None` for none.

    Attributes:
        failed_at: When the last traceback began, by `time.monotonic`; `None` without one.
        is_closed: Whether nobody reads this process's output any more, as under `| head`.
    """

    def __init__(
        self,
        output: IO[bytes] | None,
        errors: IO[bytes] | None,
        *,
        prefix: bytes,
        log: Path | None,
    ) -> None:
        self.failed_at: float | None = None
        self.is_closed = False
        self._prefix = prefix
        self._errors: collections.deque[bytes] = collections.deque(maxlen=_MOST_LINES)
        self._log = open(log, "ab") if log else None  # noqa: SIM115 - closed by `join`
        self._threads = [
            threading.Thread(target=self._copy, args=(stream, is_error), daemon=True)
            for stream, is_error in ((output, False), (errors, True))
            if stream is not None
        ]
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all is copied, for a process that has ended.

        Args:
            seconds: At most; what the worker has started may hold its streams open.
        """
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._log is not None and not any(thread.is_alive() for thread in self._threads):
            self._log.close()

    def last_error(self, *, has_traceback: bool = True) -> str:
        """Return what `child.last_error` finds in its standard error."""
        said = b"".join(self._errors).decode("utf-8", errors="replace")
        return last_error(said, has_traceback=has_traceback)

    def lost_connection(self) -> bool:
        """Whether the last error is that of a worker that has lost another one."""
        return _LOST_CONNECTION.search("\n".join(unquoted(self.last_error()))) is not None

    def _copy(self, source: IO[bytes], is_error: bool) -> None:
        to = (sys.stderr if is_error else sys.stdout).buffer
        for line in source:
            whole = line if line.endswith(b"\n") else line + b"\n"
            if is_error:
                self._errors.append(whole)
                if whole.startswith(_TRACEBACK_BYTES):
                    self.failed_at = time.monotonic()
            with _whole_lines:
                self._write(to, whole)
        source.close()

    def _write(self, to: IO[bytes], line: bytes) -> None:
        if self._log is not None:
            # A full disk must not end a training that could go on.
            with contextlib.suppress(OSError):
                self._log.write(line)
                self._log.flush()
        if not self.is_closed:
            try:
                to.write(self._prefix + line)
                to.flush()
            except OSError:
                self.is_closed = True
