"""`run_workers`: this machine's workers from start to end, and their output line by line."""

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

from ..processes.child import PIPE, Child, Resources
from ..processes.process_exit import ERROR_STARTS, error_lines, last_error, shell_code

# Time for the remaining workers to print their errors after a failure: they cannot go on.
_AFTER_FAILURE_SECONDS = 5.0
# Signals that only carry a message, and do not ask a program to end.
HARMLESS_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
_PASSED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *HARMLESS_SIGNALS)
# Time to notice that the reader of the output is gone.
_POLL_SECONDS = 1.0
_READ_SECONDS = 2.0
# Longest time from an uncaught error to the end of its process.
_LONGEST_END_SECONDS = 60.0
# Lines arrive as they are printed, and a crash prints the stacks of all threads.
_WORKER_VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
# Errors of TensorFlow on a worker that has lost its connection to a worker.
_LOST_CONNECTION = re.compile(
    r"^\S*(UnavailableError|AbortedError|CancelledError|DeadlineExceededError|ConnectionError"
    r"|ConnectionResetError|ConnectionRefusedError)\b|Connection reset by peer|Socket closed"
    r"|heartbeat",
    re.MULTILINE,
)
_MOST_ERROR_LINES = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkersOutcome:
    """The outcome of the workers.

    Attributes:
        code: The exit code of the worker that failed first, as in a shell. Without a failure, 0, or
            1 if the reader of the output is gone.
        failed: The worker that failed first.
        seconds: Seconds from the start until `failed` ended, or until all workers ended.
        signal: First signal to this process that asks it to end.
        lost: Indices of the workers that were killed from outside, as Linux does when memory runs
            out, or that a signal had stopped.
        answers: The answers (`send_answer`) of the first worker that has any.
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
    """Start workers, and return when all workers have ended.

    A signal is passed on to all workers. After the failure of a worker, the remaining workers are
    ended. No worker, and no process that a worker has started, outlives the call.
    """
    began = time.monotonic()
    workers: list[Worker] = []
    running = _RunningWorkers(workers, grace)
    try:
        for start in starts:
            workers.append(start())
            threading.Thread(target=_wait_for_end, args=(workers[-1], events), daemon=True).start()
        while any(worker.code is None for worker in workers):
            running.handle(_next_event(events, running.seconds_left()))
    finally:
        for worker in workers:
            worker.kill()
    failed = running.first_failed()
    ended = failed.ended_at if failed else time.monotonic()
    return WorkersOutcome(
        code=shell_code(failed.code or 0) if failed else int(running.lost_output),
        failed=failed,
        seconds=ended - began,
        signal=running.signal,
        lost=tuple(at for at, worker in enumerate(workers) if running.has_lost(worker)),
        answers=next((worker.answers for worker in workers if worker.answers), {}),
    )


@contextlib.contextmanager
def passed_signals(events: "queue.SimpleQueue[Any]") -> Iterator[None]:
    """Put each signal for the workers into a queue, inside the `with` block.

    Only a `SimpleQueue` may be written to in a signal handler. Signals that this process ignores,
    as SIGHUP under `nohup`, stay ignored.
    """

    def put_signal(number: int, _: FrameType | None) -> None:
        events.put(signal.Signals(number))

    handlers = {number: signal.getsignal(number) for number in _PASSED_SIGNALS}
    handlers = {
        number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN
    }
    try:
        for number in handlers:
            signal.signal(number, put_signal)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _RunningWorkers:
    """The running workers, and the reactions to signals, failures and lost output."""

    def __init__(self, workers: "list[Worker]", grace: float) -> None:
        self.signal: signal.Signals | None = None
        self.lost_output = False
        self._workers = workers
        self._grace = grace
        self._kill_at: float | None = None
        self._told_to_end_at: float | None = None  # the remaining workers, by this process

    def seconds_left(self) -> float:
        """Return the seconds until the next check."""
        if self._kill_at is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, self._kill_at - time.monotonic()))

    def handle(self, event: Any) -> None:
        """Handle a signal, a worker that has ended, or `None` after a timeout."""
        if isinstance(event, signal.Signals):
            self._pass_on(event)
        elif isinstance(event, Worker) and event.code and event in self._workers:
            # The end of a worker of an earlier attempt may come late, and is not in `_workers`.
            self._end_others(_AFTER_FAILURE_SECONDS)
        elif any(worker.output.is_closed for worker in self._workers):  # as under `| head`
            self.lost_output = True
            self._end_others(self._grace)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for worker in self._workers:
                worker.kill()

    def first_failed(self) -> "Worker | None":
        """Return the worker with the first error: later errors may be connections lost to it."""
        failed = [worker for worker in self._workers if worker.code and self._has_failed(worker)]
        return min(failed, key=self._failure_order, default=None)

    def _has_failed(self, worker: "Worker") -> bool:
        """Whether a worker has failed, and did not only end because this process told it to end."""
        return (
            not self._may_have_been_told_to_end(worker)
            or worker.is_stopped
            or worker.failed_at is not None
        )

    def _may_have_been_told_to_end(self, worker: "Worker") -> bool:
        """Whether a worker may have ended because this process told it to, after a failure.

        A worker that was killed from outside was not told to end, even if this process first sees
        the end of a worker that lost the connection to the killed worker.
        """
        is_killed_by_others = worker.code == -signal.SIGKILL and not worker.was_killed
        is_later = self._told_to_end_at is not None and worker.ended_at > self._told_to_end_at
        return is_later and not is_killed_by_others

    def _was_lost(self, worker: "Worker") -> bool:
        """Whether a signal that this process did not send has ended or stopped a worker."""
        was_told = self.signal is not None or self._may_have_been_told_to_end(worker)
        return worker.is_stopped or (not was_told and (worker.code or 0) < 0)

    def has_lost(self, worker: "Worker") -> bool:
        """Whether a worker was killed or stopped by no fault of its own."""
        is_killed = worker.code == -signal.SIGKILL
        return worker.is_stopped or (is_killed and self._was_lost(worker))

    def _failure_order(self, worker: "Worker") -> tuple[bool, float]:
        """Return a sort key: lost workers first, then times of failures, lost connections last."""
        if self._was_lost(worker):  # always a cause: another worker's error sends no signal
            return False, 0.0
        at = worker.failed_at
        return worker.output.lost_connection(), worker.ended_at if at is None else at

    def _pass_on(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.send(number)
        if number in HARMLESS_SIGNALS:
            return
        if self.signal is None:
            self.signal = number
            self._kill_by(time.monotonic() + self._grace)
            print(
                f"kdist launch: received {number.name}: the workers may finish and save for up to"
                f" {self._grace:g} s (--grace); a second signal kills them",
                file=sys.stderr,
                flush=True,
            )
        else:
            self._kill_by(time.monotonic())

    def _end_others(self, seconds: float) -> None:
        if self._told_to_end_at is not None or self.signal is not None:
            return
        self._told_to_end_at = time.monotonic()
        for worker in self._workers:
            if worker.check_stopped():
                worker.kill()
            worker.send(signal.SIGTERM)
        self._kill_by(self._told_to_end_at + min(seconds, self._grace))

    def _kill_by(self, at: float) -> None:
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)


def _next_event(events: "queue.SimpleQueue[Any]", seconds: float) -> Any:
    try:
        return events.get(timeout=seconds)
    except queue.Empty:
        return None


def _wait_for_end(worker: "Worker", events: "queue.SimpleQueue[Any]") -> None:
    worker.wait()
    events.put(worker)


class Worker:
    """A process that runs the user's program.

    Each line of its output begins with `prefix`, and also goes into the file `log`.

    Attributes:
        rank: Index among all workers.
        code: Exit code as in `Child.exit_code`; `None` while the worker runs.
        ended_at: Time of the end, by `time.monotonic`.
        is_stopped: Whether a signal, for example SIGSTOP, had stopped the worker before its kill.
        was_killed: Whether `kill` was called while the worker ran.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        rank: int,
        environment: Mapping[str, str],
        resources: Resources,
        prefix: str,
        log: Path | None,
    ) -> None:
        self.rank = rank
        self.code: int | None = None
        self.is_stopped = self.was_killed = False
        self.ended_at = 0.0
        # The user's values of these variables take precedence.
        defaults = {
            name: value for name, value in _WORKER_VARIABLES.items() if name not in os.environ
        }
        self._child = Child(
            command,
            resources=resources,
            environment={**defaults, **environment},
            output=PIPE,
            errors=PIPE,
        )
        self.output = WorkerOutput(*self._child.streams, prefix=prefix.encode(), log=log)

    @property
    def answers(self) -> Mapping[str, Any]:
        """The values that the worker has passed to `send_answer`."""
        return self._child.answers

    @property
    def failed_at(self) -> float | None:
        """The time of the final traceback; `None` without a traceback, or if the worker went on."""
        at = self.output.failed_at
        return at if at is not None and self.ended_at - at < _LONGEST_END_SECONDS else None

    def last_error(self) -> str:
        """Return the final error: a traceback, or the last lines."""
        return self.output.last_error(has_traceback=self.failed_at is not None)

    def wait(self) -> None:
        """Wait for the process to end."""
        code = self._child.wait()
        self.ended_at = time.monotonic()
        self.code = code

    def check_stopped(self) -> bool:
        """Update and return `is_stopped`; see `Child.is_stopped`."""
        self.is_stopped = self.code is None and self._child.is_stopped()
        return self.is_stopped

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        if self.code is None:
            self._child.send_signal(number)

    def kill(self) -> None:
        """Kill the process and all processes that it has started, and copy its last lines."""
        self.was_killed = self.was_killed or self.code is None
        self._child.kill()
        self.output.join(_READ_SECONDS)


_line_lock = threading.Lock()
_TRACEBACK_BYTES = tuple(start.encode() for start in ERROR_STARTS)


class WorkerOutput:
    """Copies a worker's two streams to the streams of this process, and into a log file.

    Attributes:
        failed_at: Time of the last traceback's start, by `time.monotonic`; `None` without a
            traceback.
        is_closed: Whether the reader of this process's output is gone, as under `| head`.
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
        self._errors: collections.deque[bytes] = collections.deque(maxlen=_MOST_ERROR_LINES)
        self._log = open(log, "ab") if log else None  # noqa: SIM115 - closed by `join`
        self._threads = [
            threading.Thread(target=self._copy, args=(stream, is_error), daemon=True)
            for stream, is_error in ((output, False), (errors, True))
            if stream is not None
        ]
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the output of an ended process; its children may hold the streams open."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._log is not None and not any(thread.is_alive() for thread in self._threads):
            self._log.close()

    def last_error(self, *, has_traceback: bool = True) -> str:
        """Return the last error in the worker's standard error."""
        errors = b"".join(self._errors).decode("utf-8", errors="replace")
        return last_error(errors, has_traceback=has_traceback)

    def lost_connection(self) -> bool:
        """Whether the last error is a lost connection to a worker."""
        return _LOST_CONNECTION.search("\n".join(error_lines(self.last_error()))) is not None

    def _copy(self, source: IO[bytes], is_error: bool) -> None:
        to = (sys.stderr if is_error else sys.stdout).buffer
        for line in source:
            whole = line if line.endswith(b"\n") else line + b"\n"
            if is_error:
                self._errors.append(whole)
                if whole.startswith(_TRACEBACK_BYTES):
                    self.failed_at = time.monotonic()
            with _line_lock:
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
