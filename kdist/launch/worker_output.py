"""`WorkerOutput`: passes on what a worker prints, and remembers its last traceback."""

import collections
import contextlib
import re
import sys
import threading
import time
from pathlib import Path
from typing import IO

# Of an error; of a worker that hangs, in Python's words if TensorFlow holds its lock; of a crash.
_TRACEBACK = (
    b"Traceback (most recent call last):",
    b"kdist: no step has ended",
    b"kdist: error: worker",
    b"Timeout (",
    b"Fatal Python error:",
)
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
# What TensorFlow logs as connections end, which is no part of the error before it.
_LOG = re.compile(rb"[EIW]\d{4} |Additional GRPC error information|:\S+:Error received from peer")
_USERS_MISTAKE = re.compile(rb"(kdist\.errors\.)?UserError: ")
# What TensorFlow raises on a worker that has lost another one.
_LOST_CONNECTION = re.compile(
    r"^\S*(UnavailableError|AbortedError|CancelledError|DeadlineExceededError|ConnectionError"
    r"|ConnectionResetError|ConnectionRefusedError)\b|Connection reset by peer|Socket closed"
    r"|heartbeat",
    re.MULTILINE,
)
_MOST_LINES = 400
_LINES_WITHOUT_TRACEBACK = 20

_whole_lines = threading.Lock()


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
        """Return the last traceback, with those that it was chained to, or the last lines.

        Of a mistake of the user's, which says all by itself, only its line.

        Args:
            has_traceback: Whether the last traceback is that of the error; otherwise the program
                has printed it and gone on.
        """
        lines = list(self._errors)
        starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
        if not starts or not has_traceback:
            return _text(lines[-_LINES_WITHOUT_TRACEBACK:])
        start = starts.pop()
        error = next((line for line in lines[start + 1 :] if not line.startswith(b" ")), b"")
        if _USERS_MISTAKE.match(error):
            return _text([error])
        while starts and any(line.startswith(_CHAINED) for line in lines[starts[-1] : start]):
            start = starts.pop()
        return _text([line for line in lines[start:] if not _LOG.match(line)])

    def lost_connection(self) -> bool:
        """Whether the last error is that of a worker that has lost another one."""
        # Lines of a traceback that are set in name files and quote them.
        lines = (line for line in self.last_error().splitlines() if not line.startswith(" "))
        return _LOST_CONNECTION.search("\n".join(lines)) is not None

    def _copy(self, source: IO[bytes], is_error: bool) -> None:
        to = (sys.stderr if is_error else sys.stdout).buffer
        for line in source:
            whole = line if line.endswith(b"\n") else line + b"\n"
            if is_error:
                self._errors.append(whole)
                if whole.startswith(_TRACEBACK):
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


def _text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", errors="replace").strip("\n")
