"""`Worker`: one worker's process, with everything that it has started."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cluster import NOTES, RANK
from .shares import Share
from .started_processes import end_started
from .worker_output import WorkerOutput

_EXEC_WORKER = Path(__file__).with_name("exec_worker.py")
_READ_SECONDS = 2.0
# From an error that nobody catches to the end of its process.
_LONGEST_END_SECONDS = 60.0
# Lines come as they are printed; a crash prints the stacks of all threads.
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


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
        code: Its exit code, as `subprocess` has it; `None` while it runs.
        ended_at: When it ended, by `time.monotonic`.
        output: What it prints.
        is_stopped: Whether a signal had stopped it, such as SIGSTOP, before it was killed.
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
        self.is_stopped = False
        self.ended_at = 0.0
        # Together, no other process has them: one is of this launch alone, one of this worker.
        names = (NOTES, RANK)
        self._own_variables = {name: environment[name] for name in names if NOTES in environment}
        start = [sys.executable, "-I", str(_EXEC_WORKER), str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: S603 - the user's own program
            [*start, ",".join(map(str, share.cores)), *command],
            env={**_ENVIRONMENT, **os.environ, **share.environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the launcher, which passes it on
        )
        self.output = WorkerOutput(
            self._process.stdout, self._process.stderr, prefix=prefix.encode(), log=log
        )

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
        code = self._process.wait()
        self.ended_at = time.monotonic()
        self.code = code

    def stands_still(self) -> bool:
        """Whether a signal has stopped the process, which then handles no other signal."""
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
            self.is_stopped = self.code is None and state.split()[0] in "Tt"
        return self.is_stopped

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def end_started(self) -> None:
        """Kill what it has started in sessions of their own, which `kill` does not reach."""
        end_started(self._own_variables)

    def kill(self) -> None:
        """Kill the process and all that it has started in its session; pass on its last lines."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.output.join(_READ_SECONDS)
