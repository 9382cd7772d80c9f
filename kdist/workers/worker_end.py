"""`end_together`: if a worker fails, all workers end with the reason.

Every worker ends itself, also after another worker has failed, been killed or frozen: TensorFlow's
heartbeats detect this (`_upstream/worker_failures.py`). `kdist launch` ends all remaining workers
(`worker_processes.py`).
"""

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .._upstream.worker_failures import (
    is_lost,
    is_lost_connection,
    report_failure,
    run_exit_functions,
)
from ..errors import LOST_WORKER_EXIT_CODE, LostWorkerError, failure_handlers, find_last_user_line

_REPORT_SECONDS = 1.0
_EXIT_SECONDS = 10.0
_T = TypeVar("_T")


def end_together(worker: int, failures: Callable[[], Sequence[str | None]]) -> None:
    """Make an uncaught exception or SIGTERM in this worker end all workers."""
    end = functools.partial(_end_process, worker, os.getpid(), failures)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if getattr(
            error, "is_raised_on_all_workers", False
        ):  # complete, and printed by all workers
            line = find_last_user_line(
                (frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace)
            )
            where = f"worker {worker}{f' ({line})' * bool(line)}"
            print(f"kdist: error: {where}: {error}", file=sys.stderr, flush=True)
        else:
            before(kind, error, trace)
        # For Ctrl-C, Python chooses the exit code.
        end(error, None if isinstance(error, KeyboardInterrupt) else 1)

    sys.excepthook = hook
    failure_handlers.append(end)
    _handle_sigterm(worker)


def _end_process(
    worker: int,
    process: int,
    failures: Callable[[], Sequence[str | None]],
    error: BaseException,
    code: int | None,
) -> None:
    """Report the failure, and end at once: TensorFlow would wait for workers that have ended."""
    if os.getpid() != process:  # a forked child: the worker itself has not failed
        return
    lost = isinstance(error, LostWorkerError)
    if is_lost_connection(error):
        lost = _report_lost(worker, _call_within(_REPORT_SECONDS, failures) or ())
    if lost and code is not None:
        code = LOST_WORKER_EXIT_CODE
    message = f"{type(error).__name__}: {error}".partition("\n")[0]
    _call_within(_REPORT_SECONDS, functools.partial(report_failure, message))
    if code is None or sys.flags.interactive or sys.flags.inspect:
        return
    threading.Thread(target=_end_after, args=(_EXIT_SECONDS, code), daemon=True).start()
    run_exit_functions()
    _flush()
    os._exit(code)


def _report_lost(worker: int, failures: Sequence[str | None]) -> bool:
    """Print the failures of the other workers; return whether all were lost without an error."""
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
