"""`end_together`: a worker that fails ends at once, and the others with its message."""

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .. import _upstream
from ..errors import FAILURE_HANDLERS, LostWorkerError

LOST_CODE = 75
"""Exit code of a worker that has lost another one: `EX_TEMPFAIL`, it is worth another try."""

_KDIST = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
_REPORT_SECONDS = 1.0
_EXIT_SECONDS = 10.0
_T = TypeVar("_T")


def end_together(worker: int, failures: Callable[[], Sequence[str | None]]) -> None:
    """Have an exception that nobody catches, and SIGTERM, end the other workers too.

    Args:
        worker: The number of this one.
        failures: Returns for each worker why it has failed, `None` for those that have not.
    """
    end = functools.partial(_end, worker, os.getpid(), failures)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if getattr(error, "is_on_all_workers", False):  # it says all, and is printed by all
            where = f"worker {worker}{_place(trace)}"
            print(f"kdist: error: {where}: {error}", file=sys.stderr, flush=True)
        else:
            before(kind, error, trace)
        # Python has an exit code of its own for Ctrl-C.
        end(error, None if isinstance(error, KeyboardInterrupt) else 1)

    sys.excepthook = hook
    FAILURE_HANDLERS.append(end)
    _handle_sigterm(worker)


def _end(
    worker: int,
    process: int,
    failures: Callable[[], Sequence[str | None]],
    error: BaseException,
    code: int | None,
) -> None:
    """Tell the others, and end: TensorFlow itself would first wait for workers that are gone."""
    if os.getpid() != process:  # one that was forked, whose end is no worker's
        return
    is_lost = isinstance(error, LostWorkerError)
    if _upstream.is_lost_connection(error):
        is_lost = _report_lost(worker, _within(_REPORT_SECONDS, failures) or ())
    if is_lost and code is not None:
        code = LOST_CODE
    message = f"{type(error).__name__}: {_text(error)}".partition("\n")[0]
    _within(_REPORT_SECONDS, functools.partial(_upstream.report_failure, message))
    if code is None or sys.flags.interactive or sys.flags.inspect:
        return
    threading.Thread(target=_end_after, args=(_EXIT_SECONDS, code), daemon=True).start()
    _upstream.run_exit_functions()
    _flush()
    os._exit(code)


def _place(trace: TracebackType | None) -> str:
    """Return where the user's own code was: the innermost line that is no library's."""
    for frame in reversed(traceback.extract_tb(trace)):
        if "site-packages" not in frame.filename and not frame.filename.startswith(_KDIST):
            return f", at {os.path.basename(frame.filename)}:{frame.lineno}"
    return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of the user's own `__str__`
        return "(its message cannot be shown)"


def _report_lost(worker: int, failures: Sequence[str | None]) -> bool:
    """Print why the others have failed; returns whether none has said so, as with its error."""
    reasons = {o: why for o, why in enumerate(failures) if why is not None and o != worker}
    for other, reason in reasons.items():
        print(f"kdist: worker {other} has failed: {reason}", file=sys.stderr, flush=True)
    return all(map(_upstream.is_lost, reasons.values()))


def _handle_sigterm(worker: int) -> None:
    """End by SIGTERM, which TensorFlow ignores from now on, unless the program handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    process = os.getpid()

    def handle(number: int, _: Any) -> None:
        if os.getpid() == process:  # not in one that was forked for data
            message = f"worker {worker} got SIGTERM"
            _within(_REPORT_SECONDS, functools.partial(_upstream.report_failure, message))
            _flush()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handle.ends_the_process = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, handle)


def _within(seconds: float, call: Callable[[], _T]) -> _T | None:
    """Return the result of a call, `None` if it takes longer: the chief may not answer."""
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
