"""Hang detection: if a worker does not start, or hangs, all workers end and print the reason.

Each worker detects this itself. `limit_start` kills a worker if the workers do not find each other
in time. `HangWatch` ends a worker if a step takes longer than `hang_seconds`, and prints which
workers are behind. `worker_end.py` ends the workers after a failure.
"""

import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._upstream.hooks import StepWatch
from ..processes.child import Child
from . import start_timeout


@contextlib.contextmanager
def limit_start(addresses: Sequence[str], *, worker: int, seconds: float) -> Iterator[None]:
    """Kill this process if the workers do not find each other inside the `with` block in time.

    A child process, `start_timeout.py`, kills it. A single worker has no limit.
    """
    if len(addresses) == 1:
        yield
        return
    watch = [sys.executable, "-I", str(Path(start_timeout.__file__)), str(seconds), str(worker)]
    with Child([*watch, *addresses]):
        yield


HANG_EXIT_CODE = 124
"""The exit code of the command `timeout`."""

_SLOW_FACTOR = 10
_TICK_SECONDS = 1.0
_STDERR = 2  # the file descriptor, as a program may replace `sys.stderr`
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 2.0
_LOCK_SECONDS = 60.0
_HUNG, _IDLE = "kdist/hang", "kdist/idle"


class HangWatch(StepWatch):
    """Counts the steps of a worker, and compares the workers when no step has ended for long.

    Ten times `seconds` are allowed for the first step of a `fit`, `evaluate` or `predict`, for a
    step that is traced, and for slow work, such as saving a model.

    Args:
        keys: The key-value store that the workers share: the module `worker_store`.
        seconds: The longest time that a step may take.
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
        self._steps, self._marks, self._last = 0, 0, clock()
        self._slow_work: str | None = None
        self._in_step, self._waiting_event = False, ""
        self._is_ending, self._has_left = False, threading.Event()
        self._silent_workers: set[int] = set()
        self._published: str | None = None

    def start(self) -> None:
        """Watch in a background thread until the process ends."""
        threading.Thread(target=self._run, name="kdist-hang-watch", daemon=True).start()

    @contextlib.contextmanager
    def watch(self, activity: str) -> Iterator[None]:
        self._activities.append(activity)
        self._note_progress("the first step")
        try:
            yield
        finally:
            if self._is_ending:
                self._has_left.set()
                threading.Event().wait()  # until the process ends
            self._activities.pop()
            self._note_progress(None)

    @contextlib.contextmanager
    def slow(self, work: str) -> Iterator[None]:
        before = self._slow_work
        self._note_progress(work)
        try:
            yield
        finally:
            self._note_progress(before)

    @contextlib.contextmanager
    def waiting(self, event: str) -> Iterator[None]:
        self._waiting_event = event
        self._note_progress(self._slow_work)
        try:
            yield
        finally:
            self._waiting_event = ""

    def record_trace(self) -> None:
        self._slow_work = "a step that is traced"

    def step_began(self) -> None:
        self._in_step = True
        self._note_progress(self._slow_work)

    def step_ended(self) -> None:
        self._steps += 1
        self._in_step = False
        self._note_progress(None)

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

    def _note_progress(self, slow: str | None) -> None:
        self._slow_work = slow
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
        if self._waiting_event:
            doing = f"{doing}, at {self._waiting_event}"
        names = {"marks": self._marks, "steps": self._steps, "in_step": self._in_step}
        return {**names, "doing": doing, "slow": self._slow_work}

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
        if idle >= self._seconds * _SLOW_FACTOR:
            return True
        return idle >= self._seconds and not self._slow_work and not self.is_other_slow()

    def is_other_slow(self) -> bool:
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
        # `_abort` makes every waiting collective fail, so that a waiting worker leaves its step. If
        # a worker stays in its step, its data or its program is the cause.
        self._abort()
        waits = self._has_left.wait(_LEAVE_SECONDS)
        states = self._exchange(
            "state", self._state() | {"waits": waits or bool(self._waiting_event)}
        )
        self._report(describe_states(states, self._seconds))
        if self._worker == 0:  # the store ends with the chief
            self._exchange("end", self._state())
        else:
            self._publish_key(f"{_HUNG}/end/{self._worker}", "{}")
        self._end(HANG_EXIT_CODE)

    def _exchange(self, event: str, state: dict[str, Any]) -> dict[int, dict[str, Any] | None]:
        """Return the states of all workers, `None` for a worker that does not answer."""
        self._publish_key(f"{_HUNG}/{event}/{self._worker}", json.dumps(state))
        until = self._clock() + _ANSWER_SECONDS
        states: dict[int, dict[str, Any] | None] = {self._worker: state}
        for other in range(self._workers):
            if other != self._worker and other not in self._silent_workers:
                seconds = max(_POLL_SECONDS, until - self._clock())
                found = self._read_key(f"{_HUNG}/{event}/{other}", seconds)
                states[other] = None if found is None else json.loads(found)
        self._silent_workers |= {other for other, answer in states.items() if answer is None}
        return states | dict.fromkeys(self._silent_workers)

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
        who = f"the other workers wait for {_name_workers(stuck)}"
    elif len(behind) < len(known):
        who = f"{_name_workers(behind, ' is', ' are')} behind"
    else:
        who = "all workers are in the same step" if len(known) > 1 else "the worker is stuck"
    activities = "; ".join(
        f"worker {worker}: {state['steps']} steps done, {_describe_activity(state)}"
        for worker, state in known.items()
    )
    return (
        f"kdist: error: no step has ended for {seconds:g} seconds: {who} ({activities}). The"
        " stacks above say where. If steps or callbacks take longer, raise hang_seconds of the"
        " strategy, or KDIST_HANG_SECONDS"
    )


def _describe_activity(state: Mapping[str, Any]) -> str:
    if state["waits"]:
        return f"waits for other workers in {state['doing']}"
    return f"{'loading data or computing, ' * bool(state['in_step'])}in {state['doing']}"


def _name_workers(numbers: list[int], singular: str = "", plural: str = "") -> str:
    is_one = len(numbers) == 1
    names = " and ".join(map(str, numbers))
    return f"worker{'s' * (not is_one)} {names}{singular if is_one else plural}"
