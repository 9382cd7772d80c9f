"""`run_in_process`: a try in a process, which may run out of memory."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ..errors import TrainingError, UserError
from ..performance.out_of_memory import says_out_of_memory
from .one_try import LIMITED, Try, TryResult

_PROGRAM = (sys.executable, "-m", "kdist.finders.one_try")
# What a program does of which an allocation fails: it ends itself, or crashes.
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS}
_TRACEBACK = "Traceback (most recent call last):"
_LAST_CHARACTERS = 6000
INSIDE = "KDIST_FINDER"
"""Set within a try, so that a script which starts one when it is imported does not start more."""


def run_in_process(
    tried: Try, *, timeout: float | None = None, program: Sequence[str] = _PROGRAM
) -> TryResult:
    """Run a try in a process of its own.

    Args:
        tried: What is tried.
        timeout: Seconds after which it is ended.
        program: What is run, before the try as JSON and the number of this process.

    Raises:
        UserError: The user's functions fail.
        TrainingError: The try failed for another reason than memory, or took too long.
    """
    if INSIDE in os.environ:
        raise UserError(
            "each try imports this file: let the call be under if __name__ == '__main__':"
        )
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - this package's own program
            [*program, json.dumps(dataclasses.asdict(tried)), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, INSIDE: "1"},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TrainingError(
                f"a try of batch size {tried.batch_size} has not ended after {timeout:g} seconds:"
                " pass a longer timeout"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.poll() is None:
                process.communicate()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    return _result(tried, process.returncode, output, said)


def _result(tried: Try, code: int, output: str, said: str) -> TryResult:
    lines = output.splitlines()
    if code == 0 and lines:
        answer = json.loads(lines[-1])
        if "error" in answer:
            raise UserError(answer["error"])
        return TryResult(**answer)
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    last = said.strip().removeprefix(LIMITED).strip()
    if _is_of_memory(code, said):
        if code >= 0 or says_out_of_memory(said):
            how = ""
        elif last:
            how += ": " + last.splitlines()[-1].strip()
        return TryResult(works=False, why="memory", how=how)
    last = last[max(last.rfind(_TRACEBACK), 0) :][-_LAST_CHARACTERS:]
    raise TrainingError(f"a try of batch size {tried.batch_size} ended with {how}: {last}")


def _is_of_memory(code: int, said: str) -> bool:
    """Whether a process has ended for want of memory.

    The kernel kills it, or C++ ends it, or it raises an error before its own search for one. It may
    crash for any other reason, too: what it says decides, or that its memory was limited.
    """
    if code == -signal.SIGKILL:
        return True
    if -code in _CRASHES:
        return LIMITED in said or says_out_of_memory(said)
    # What was printed before its error is not about it.
    return says_out_of_memory(said.strip().rpartition("\n")[2])
