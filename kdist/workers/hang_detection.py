"""Hang detection: if a worker never starts, hangs or fails, all workers end with a reason.

Every worker ends itself. `limit_start` ends it if the workers do not find each other in time.
`HangWatch` ends it if a step takes longer than `hang_seconds`, and prints the workers that are
behind. `end_together` ends it after a failure, also if another worker has failed, been killed or
frozen: TensorFlow's heartbeats detect this (`_upstream/worker_failures.py`). `kdist launch` ends
all workers that are left (`worker_processes.py`).
"""

import contextlib
import faulthandler
import functools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from .._upstream.worker_failures import (
    is_lost,
    is_lost_connection,
    report_failure,
    run_exit_functions,
)
from ..errors import FAILURE_HANDLERS, LOST_CODE, LostWorkerError, user_line
from ..launch.child import Child
from . import start_watch


@contextlib.contextmanager
def limit_start(addresses: Sequence[str], *, worker: int, seconds: float) -> Iterator[None]:
    """Inside the `with` block, the workers find each other; end this process after a time limit.

    A single worker has no limit.
    """
    if len(addresses) == 1:
        yield
        return
    watch = [sys.executable, "-I", str(Path(start_watch.__file__)), str(seconds), str(worker)]
    with Child([*watch, *addresses]):
        yield


EXIT_CODE = 124
"""The exit code of the command `timeout`."""

_SLOW_TIMES = 10
_TICK_SECONDS = 1.0
_STDERR = 2  # the file descriptor, as a program may replace `sys.stderr`
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 2.0
_LOCK_SECONDS = 60.0
_HUNG, _IDLE = "kdist/hang", "kdist/idle"


class HangWatch:
    """Counts the steps of a worker, and compares the workers when no step has ended for long.

    The first step of a `fit`, `evaluate` or `predict`, a step that is traced, and the saving of a
    model may take ten times `seconds`.

    Args:
        worker: The number of this worker.
        workers: The number of workers.
        keys: The key-value store that the workers share: the module `worker_store`.
        seconds: The longest time that a step may take.
        clock: Returns the time in seconds.
        report: Called with lines for the user.
        dump: Prints the stacks of all threads.
        abort: Makes this worker's waiting collectives fail.
        end: Called with the exit code.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        keys: Any,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
        dump: Callable[[], object] = lambda: faulthandler.dump_traceback(_STDERR),
        abort: Callable[[], object] = lambda: None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._worker, self._workers, self._keys = worker, workers, keys
        self._seconds, self._clock = seconds, clock
        self._report, self._dump, self._abort, self._end = report, dump, abort, end
        self._activities: list[str] = []
        self._known: set[str] = set()  # steps of the user's own loops
        self._steps, self._marks, self._last = 0, 0, clock()
        self._slow: str | None = None
        self._in_step, self._waits_at = False, ""
        self._is_ending, self._has_left = False, threading.Event()
        self._silent: set[int] = set()
        self._published: str | None = None

    def start(self) -> None:
        """Watch in a background thread until the process ends."""
        threading.Thread(target=self._run, name="kdist-hang-watch", daemon=True).start()

    @contextlib.contextmanager
    def watch(self, activity: str) -> Iterator[None]:
        """Inside the `with` block, the worker is in `fit`, `evaluate` or `predict`."""
        self._activities.append(activity)
        self._mark("the first step")
        try:
            yield
        finally:
            if self._is_ending:
                self._has_left.set()
                threading.Event().wait()  # until the process ends
            self._activities.pop()
            self._mark(None)

    @contextlib.contextmanager
    def watch_step(self, activity: str) -> Iterator[None]:
        """Inside the `with` block, the worker is in a step that the user's own loop calls.

        Between two steps the loop may do anything, for any time, if no worker waits for it.
        """
        is_first = activity not in self._known
        with self.watch(activity):
            self._slow = "the first step" if is_first else None
            self.step_began()
            yield
            self.step_ended()
        self._known.add(activity)

    @contextlib.contextmanager
    def slow(self, what: str) -> Iterator[None]:
        """Inside the `with` block, the worker does slow work, such as saving."""
        before = self._slow
        self._mark(what)
        try:
            yield
        finally:
            self._mark(before)

    @contextlib.contextmanager
    def waiting(self, event: str) -> Iterator[None]:
        """Inside the `with` block, the worker waits for all workers to reach an event."""
        self._waits_at = event
        self._mark(self._slow)
        try:
            yield
        finally:
            self._waits_at = ""

    def record_trace(self) -> None:
        """Record that the current step is traced."""
        self._slow = "a step that is traced"

    def step_began(self) -> None:
        """Record the start of a step."""
        self._in_step = True
        self._mark(self._slow)

    def step_ended(self) -> None:
        """Record the end of a step."""
        self._steps += 1
        self._in_step = False
        self._mark(None)

    def check(self) -> None:
        """Compare the workers if no step has ended for long; called at every tick."""
        marks, idle = self._marks, self._clock() - self._last
        if idle < self._seconds / 2:
            self._withdraw()
            return
        self._publish()
        if self._read_key(_HUNG, _POLL_SECONDS) is not None:
            self._give_up(idle)
        elif self._activities and self._has_expired(idle) and marks == self._marks:
            self._publish_key(_HUNG, str(self._worker))
            self._give_up(idle)

    def _mark(self, slow: str | None) -> None:
        self._slow = slow
        self._marks += 1
        self._last = self._clock()

    def _run(self) -> None:
        tick = min(_TICK_SECONDS, self._seconds / 20)
        is_armed = False
        while True:
            # A timer in C: a call that never releases Python's lock stops this thread, too.
            if self._activities:
                seconds = 2 * self._seconds + _LOCK_SECONDS
                faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
            elif is_armed:
                faulthandler.cancel_dump_traceback_later()
            is_armed = bool(self._activities)
            self.check()
            time.sleep(tick)

    def _state(self) -> dict[str, Any]:
        doing = " in ".join(reversed(self._activities)) or "neither fit, evaluate nor predict"
        if self._waits_at:
            doing = f"{doing}, at {self._waits_at}"
        names = {"marks": self._marks, "steps": self._steps, "in_step": self._in_step}
        return {**names, "doing": doing, "slow": self._slow}

    def _publish(self) -> None:
        state = json.dumps(self._state())
        if state != self._published:
            self._withdraw()
            self._publish_key(f"{_IDLE}/{self._worker}", state)
            self._published = state

    def _withdraw(self) -> None:
        if self._published is not None:
            self._published = None
            with contextlib.suppress(Exception):
                self._keys.delete_key(f"{_IDLE}/{self._worker}")

    def _has_expired(self, idle: float) -> bool:
        if idle >= self._seconds * _SLOW_TIMES:
            return True
        return idle >= self._seconds and not self._slow and not self.is_other_slow()

    def is_other_slow(self) -> bool:
        """Whether another worker has reported slow work."""
        workers = (worker for worker in range(self._workers) if worker != self._worker)
        states = (self._read_key(f"{_IDLE}/{worker}", 1.0) for worker in workers)
        return any(json.loads(state)["slow"] for state in states if state is not None)

    def _give_up(self, idle: float) -> None:
        """Print the stacks of this worker, compare all workers, and end; the chief ends last."""
        faulthandler.cancel_dump_traceback_later()
        self._report(
            f"kdist: no step has ended for {idle:.0f} seconds; the stacks of worker {self._worker}:"
        )
        self._dump()
        self._is_ending = True
        self._exchange("stack", self._state())
        # A worker that waits in a collective gets an error now, and leaves its step. A worker that
        # does not leave keeps the rest waiting: it is stuck in its data or its own code.
        self._abort()
        waits = self._has_left.wait(_LEAVE_SECONDS)
        states = self._exchange("state", self._state() | {"waits": waits or bool(self._waits_at)})
        self._report(describe_states(states, self._seconds))
        if self._worker == 0:  # the store ends with the chief
            self._exchange("end", self._state())
        else:
            self._publish_key(f"{_HUNG}/end/{self._worker}", "{}")
        self._end(EXIT_CODE)

    def _exchange(self, event: str, own: dict[str, Any]) -> dict[int, dict[str, Any] | None]:
        """Return the states of all workers, `None` for a worker that does not answer."""
        self._publish_key(f"{_HUNG}/{event}/{self._worker}", json.dumps(own))
        until = self._clock() + _ANSWER_SECONDS
        states: dict[int, dict[str, Any] | None] = {self._worker: own}
        for other in range(self._workers):
            if other != self._worker and other not in self._silent:
                left = max(_POLL_SECONDS, until - self._clock())
                found = self._read_key(f"{_HUNG}/{event}/{other}", left)
                states[other] = None if found is None else json.loads(found)
        self._silent |= {other for other, state in states.items() if state is None}
        return states | dict.fromkeys(self._silent)

    def _publish_key(self, key: str, value: str) -> None:
        if self._workers > 1:
            with contextlib.suppress(Exception):  # the key exists, or the chief has ended
                self._keys.set_key(key, value)

    def _read_key(self, key: str, seconds: float) -> str | None:
        if self._workers > 1:
            with contextlib.suppress(Exception):  # the chief has ended
                found: str | None = self._keys.get_key(key, timeout_ms=max(1, int(1000 * seconds)))
                return found
        return None


def describe_states(states: Mapping[int, dict[str, Any] | None], seconds: float) -> str:
    """Return a line that names the workers that are behind."""
    known = {worker: state for worker, state in sorted(states.items()) if state is not None}
    silent = sorted(worker for worker, state in states.items() if state is None)
    stuck = [worker for worker, state in known.items() if not state["waits"]]
    least = min(state["marks"] for state in known.values())
    behind = [worker for worker, state in known.items() if state["marks"] == least]
    if silent:
        who = f"{_name_workers(silent, ' does', ' do')} not answer"
    elif 0 < len(stuck) < len(known):
        who = f"the others wait for {_name_workers(stuck)}"
    elif len(behind) < len(known):
        who = f"{_name_workers(behind, ' is', ' are')} behind"
    else:
        who = "all are in the same step" if len(known) > 1 else "it is stuck"
    each = "; ".join(
        f"worker {worker}: {state['steps']} steps ended, {_describe_activity(state)}"
        for worker, state in known.items()
    )
    return (
        f"kdist: error: no step has ended for {seconds:g} seconds: {who} ({each}). The stacks above"
        " say where. If steps or callbacks take longer, raise hang_seconds of the strategy, or"
        " KDIST_HANG_SECONDS"
    )


def _describe_activity(state: Mapping[str, Any]) -> str:
    if state["waits"]:
        return f"waits for others in {state['doing']}"
    return f"in {'data or computing of ' * bool(state['in_step'])}{state['doing']}"


def _name_workers(numbers: list[int], one: str = "", several: str = "") -> str:
    is_one = len(numbers) == 1
    names = " and ".join(map(str, numbers))
    return f"worker{'s' * (not is_one)} {names}{one if is_one else several}"


_REPORT_SECONDS = 1.0
_EXIT_SECONDS = 10.0
_T = TypeVar("_T")


def end_together(worker: int, failures: Callable[[], Sequence[str | None]]) -> None:
    """Make an uncaught exception or SIGTERM in this worker end all workers."""
    end = functools.partial(_end_process, worker, os.getpid(), failures)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if getattr(error, "is_on_all_workers", False):  # complete, and printed by all workers
            line = user_line(
                (frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace)
            )
            where = f"worker {worker}{f' ({line})' * bool(line)}"
            print(f"kdist: error: {where}: {error}", file=sys.stderr, flush=True)
        else:
            before(kind, error, trace)
        # Python has an exit code of its own for Ctrl-C.
        end(error, None if isinstance(error, KeyboardInterrupt) else 1)

    sys.excepthook = hook
    FAILURE_HANDLERS.append(end)
    _handle_sigterm(worker)


def _end_process(
    worker: int,
    process: int,
    failures: Callable[[], Sequence[str | None]],
    error: BaseException,
    code: int | None,
) -> None:
    """Report the failure, and end: TensorFlow would first wait for workers that have ended."""
    if os.getpid() != process:  # a forked child: the worker itself has not failed
        return
    lost = isinstance(error, LostWorkerError)
    if is_lost_connection(error):
        lost = _report_lost(worker, _call_within(_REPORT_SECONDS, failures) or ())
    if lost and code is not None:
        code = LOST_CODE
    message = f"{type(error).__name__}: {_error_message(error)}".partition("\n")[0]
    _call_within(_REPORT_SECONDS, functools.partial(report_failure, message))
    if code is None or sys.flags.interactive or sys.flags.inspect:
        return
    threading.Thread(target=_end_after, args=(_EXIT_SECONDS, code), daemon=True).start()
    run_exit_functions()
    _flush()
    os._exit(code)


def _error_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # any error of the user's own `__str__`
        return "(its message cannot be shown)"


def _report_lost(worker: int, failures: Sequence[str | None]) -> bool:
    """Print the failures of the other workers; return whether all of them lack a reason."""
    reasons = {
        other: reason
        for other, reason in enumerate(failures)
        if reason is not None and other != worker
    }
    for other, reason in reasons.items():
        print(f"kdist: worker {other} has failed: {reason}", file=sys.stderr, flush=True)
    return all(map(is_lost, reasons.values()))


def _handle_sigterm(worker: int) -> None:
    """Let SIGTERM end this worker, unless the program handles it: TensorFlow ignores it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    process = os.getpid()

    def handle(number: int, _: Any) -> None:
        if os.getpid() == process:  # not in a child that was forked for data
            message = f"worker {worker} got SIGTERM"
            _call_within(_REPORT_SECONDS, functools.partial(report_failure, message))
            _flush()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handle.ends_the_process = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, handle)


def _call_within(seconds: float, call: Callable[[], _T]) -> _T | None:
    """Return the result of a call; `None` if it takes longer, as the chief may not answer."""
    found: list[_T] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _end_after(seconds: float, code: int) -> None:
    threading.Event().wait(seconds)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
