"""Runs a command line as a shell would, in a process of its own."""

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from .cases import Case
from .folder import contents, folder_of
from .outcome import MOST_SECONDS, FindingError, Outcome

_ROOT = Path(__file__).resolve().parents[2]


def can_run(case: Case) -> bool:
    """Whether a process can be given the arguments: the system takes bytes without null."""
    try:
        return not any(b"\0" in os.fsencode(argument) for argument in case.arguments)
    except UnicodeEncodeError:
        return False


def run(case: Case) -> Outcome:
    """Run a case.

    Raises:
        FindingError: It hangs.
    """
    with (
        folder_of(case) as folder,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as out,
    ):
        before = contents(folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "kdist", *case.arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        code, peak = _wait(process)
        return Outcome(
            code=code,
            output=_text(out),
            errors=_text(err),
            peak_bytes=peak,
            changed=dict(contents(folder).items() ^ before.items()),
        )


def _wait(process: "subprocess.Popen[bytes]") -> tuple[int, int]:
    """Wait for a process: its exit code, and the most bytes of memory that it had."""
    ended = os.pidfd_open(process.pid)
    try:
        if not select.select([ended], [], [], 10 * MOST_SECONDS)[0]:
            process.kill()
            raise FindingError(f"no end within {10 * MOST_SECONDS} s")
    finally:
        os.close(ended)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss * 1024


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
