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
from .trial import Trial, TrialResult

_PROGRAM = (sys.executable, "-m", "kdist.finders.trial")
# What a program does that gets no memory: it is killed, ends itself, or crashes.
_OUT_OF_MEMORY = {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS}
_WORDS = ("bad_alloc", "MemoryError", "out of memory", "OOM when allocating", "Cannot allocate")
_LAST_CHARACTERS = 500
INSIDE = "KDIST_FINDER"
"""Set within a try, so that a script which starts one when it is imported does not start more."""


def run_in_process(
    trial: Trial, *, timeout: float | None = None, program: Sequence[str] = _PROGRAM
) -> TrialResult:
    """Run a try in a process of its own.

    Args:
        trial: It.
        timeout: Seconds after which it is ended.
        program: What is run, before the try as JSON.

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
            [*program, json.dumps(dataclasses.asdict(trial))],
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
                f"a try of batch size {trial.batch_size} has not ended after {timeout:g} seconds:"
                " pass a longer timeout"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.poll() is None:
                process.communicate()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    return _result(trial, process.returncode, output, said)


def _result(trial: Trial, code: int, output: str, said: str) -> TrialResult:
    lines = output.splitlines()
    if code == 0 and lines:
        answer = json.loads(lines[-1])
        if "error" in answer:
            raise UserError(answer["error"])
        return TrialResult(**answer)
    if -code in _OUT_OF_MEMORY or any(word in said for word in _WORDS):
        return TrialResult(works=False, why="memory")
    last = said.strip()[-_LAST_CHARACTERS:]
    raise TrainingError(
        f"a try of batch size {trial.batch_size} ended with exit code {code}: {last}"
    )
