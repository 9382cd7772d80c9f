"""`Child`: a process of kdist, its answers and the cause of its end; no child outlives its parent.

kdist starts all processes as a `Child`: workers, runs of a sweep, trials, tries of a batch size.
This module alone decides whether a process ran out of memory. It never imports TensorFlow.
"""

import contextlib
import dataclasses
import errno
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from ..files import says_full_disk
from ..signals import hold_signals

PIPE = subprocess.PIPE
_EXEC_CHILD = Path(__file__).with_name("exec_child.py")
_PROCESSES = Path("/proc")
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
# Variable with the marks of a child and its ancestors, joined like a path. All processes that the
# child starts inherit the variable.
_MARK = "KDIST_CHILD"
_ANSWERS = "KDIST_CHILD_ANSWERS"  # variable with the file descriptor of the answers
_PAUSE_SECONDS = 0.01
# Longest wait after a kill: a process that hangs in a driver cannot be killed.
_KILL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Share:
    """GPUs and cores of a child.

    Attributes:
        gpus: Names as in `CUDA_VISIBLE_DEVICES`; `None` leaves this variable unchanged.
        cores: Cores that the child may use; an empty tuple keeps the cores of this process.
    """

    gpus: tuple[str, ...] | None = None
    cores: tuple[int, ...] = ()


class Child:
    """A process in a session of its own that ends when this process ends.

    A terminal's Ctrl-C reaches only this process, which then ends its children. `kill`, or the end
    of a `with` block, kills the child and all processes that it has started, in any session.

    Args:
        command: The program and its arguments.
        orders: Values passed as the last argument of the program, where `orders` reads them.
        share: GPUs and cores of the child.
        environment: Variables in addition to the environment of this process.
        output: Target of standard output; by default the standard output of this process.
        errors: Target of standard error; by default the standard error of this process.

    Attributes:
        pid: Process ID.

    Raises:
        FileNotFoundError: The program does not exist.
        Interrupted: A signal arrived during the start; the child is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        orders: Mapping[str, Any] | None = None,
        share: Share | None = None,
        environment: Mapping[str, str] | None = None,
        output: int | IO[Any] | None = None,
        errors: int | IO[Any] | None = None,
    ) -> None:
        program = shutil.which(command[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        share = share or Share()
        last = [] if orders is None else [json.dumps(orders)]
        cores = ",".join(map(str, share.cores))
        self._mark = "/".join(filter(None, (os.environ.get(_MARK), secrets.token_hex(8))))
        self._answers: dict[str, Any] = {}
        self._answers_file: IO[bytes] | None = tempfile.TemporaryFile()  # noqa: SIM115 - in `kill`
        descriptor = self._answers_file.fileno()
        own = {_MARK: self._mark, _ANSWERS: str(descriptor)}
        if share.gpus is not None:
            own[VISIBLE_GPUS] = ",".join(share.gpus)
        with hold_signals() as received:  # a process without a reference would never be ended
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the caller's own program
                    [
                        *(sys.executable, "-I", str(_EXEC_CHILD), str(os.getpid()), cores),
                        *(program, *command[1:], *last),
                    ],
                    env={**os.environ, **(environment or {}), **own},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    pass_fds=(descriptor,),
                )
            except BaseException:
                self._answers_file.close()
                raise
        self.pid = self._process.pid
        try:
            received.check()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def streams(self) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        """Standard output and standard error; `None` for a stream that is not `PIPE`."""
        return self._process.stdout, self._process.stderr

    @property
    def code(self) -> int | None:
        """The exit code, `-N` after a kill by signal number N; `None` while the process runs."""
        return self._process.poll()

    @property
    def answers(self) -> Mapping[str, Any]:
        """The values that the child has passed to `answer` so far; the last value of a name."""
        if self._answers_file is not None:
            file = self._answers_file.fileno()
            # The child shares the position in the file, so the position must not move.
            for line in os.pread(file, os.fstat(file).st_size, 0).splitlines():
                with contextlib.suppress(ValueError):  # the child was killed within the line
                    self._answers |= json.loads(line)
        return self._answers

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the exit code; raise `TimeoutError` if the process has not ended in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} has not ended") from None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether a signal, for example SIGSTOP, has stopped the process.

        A stopped process handles no signal besides SIGCONT and SIGKILL.
        """
        with contextlib.suppress(OSError):
            state = (_PROCESSES / str(self.pid) / "stat").read_text().rpartition(")")[2]
            return self.code is None and state.split()[0] in "Tt"
        return False

    def kill(self) -> None:
        """Kill the process and all processes that it has started, in any session.

        Processes in sessions of their own are found by `/proc` and their environment. A process
        that has changed its environment, or a system without `/proc`, evades the search.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        until = time.monotonic() + _KILL_SECONDS
        while _kill_marked(self._mark.encode()) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)  # killed processes may still start a process
        with contextlib.suppress(TimeoutError):
            self.wait(_KILL_SECONDS)
        if self._answers_file is not None:
            _ = self.answers  # reads the last answers before the file is closed
            self._answers_file.close()
            self._answers_file = None

    def verdict(self, said: str = "") -> "Verdict":
        """Wait for the process, and return the cause of its end; `said` is its standard error."""
        return judge(self.wait(), said, self.answers)


def _kill_marked(mark: bytes) -> bool:
    """Kill the processes with a mark, or with marks below it; returns whether there were any."""
    wanted = re.compile(rb"(?:^|\0)%s=%s(?:/|\0|$)" % (_MARK.encode(), re.escape(mark)))
    found = False
    for path in _PROCESSES.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or is of a different user
            if wanted.search(path.read_bytes()):
                found = True
                os.kill(int(path.parent.name), signal.SIGKILL)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A child that has ended.

    Attributes:
        code: Exit code, `-N` after a kill by signal number N.
        output: Text of standard output.
        errors: Text of standard error.
        answers: Values that the child passed to `answer`.
    """

    code: int
    output: str
    errors: str
    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> "Verdict":
        """The cause of the end."""
        return judge(self.code, self.errors, self.answers)


def run(
    command: Sequence[str],
    *,
    seconds: float | None = None,
    orders: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program as a `Child` until it ends, and kill the processes that it has started.

    Raises:
        FileNotFoundError: The program does not exist.
        TimeoutError: The program has not ended after `seconds`, and is killed.
    """
    # Files instead of pipes: a full pipe blocks the child, and any process may hold a pipe open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with Child(
            command, orders=orders, environment=environment, output=output, errors=errors
        ) as child:
            code = child.wait(seconds)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Ended(code=code, output=texts[0], errors=texts[1], answers=child.answers)


def orders() -> Any:
    """In a child, return the orders of the parent."""
    return json.loads(sys.argv[-1])


def answer(**values: Any) -> None:
    """In a child, send values to the parent as a line of JSON.

    A process without a parent of kdist sends nothing.

    Args:
        **values: Values by name. `judge` reads `mistake`, the message of the user's mistake that
            ended the child, and `limited`, whether the child's memory has a limit. The meaning of
            all further names is up to child and parent.
    """
    if _ANSWERS in os.environ:
        os.write(int(os.environ[_ANSWERS]), f"{json.dumps(values)}\n".encode())


def shell_code(code: int) -> int:
    """Return the exit code that a shell shows: 128 + signal number for a killed process."""
    return 128 - code if code < 0 else code


# The last error of a process ------------------------------------------------------------------

# First lines of an error, of a hanging worker, and of a crash. The report of a hanging worker is
# Python's own (`Timeout (`) if TensorFlow holds Python's lock.
TRACEBACK = (
    "Traceback (most recent call last):",
    "kdist: no step has ended",
    "kdist: error: worker",
    "Timeout (",
    "Fatal Python error:",
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Logs of TensorFlow as connections end. They are no part of the error before them.
_LOG = re.compile(r"[EIW]\d{4} |Additional GRPC error information|:\S+:Error received from peer")
# Lines after an error that are no part of the error: blank lines, INFO and WARNING logs.
_NO_ERROR = re.compile(r"^\s*$|^[IW]\d{4} |^\d{4}-\d\d-\d\d .*: [IW] ")
_USERS_MISTAKE = re.compile(r"(kdist\.errors\.)?UserError: ")
# Message of kdist when it ends a process; a launcher puts the number of the worker in front.
_OWN_ERROR = re.compile(r"^(?:\[\d+\] )?kdist: error: (.+)$", re.MULTILINE)
_LINES_WITHOUT_TRACEBACK = 20
_TAIL = 400


def last_error(said: str, *, has_traceback: bool = True) -> str:
    """Return the last traceback with the tracebacks chained to it, or the last lines.

    For a `UserError`, return only its line, because the message is complete. Without
    `has_traceback`, the last traceback is no error: the program has printed it and gone on.
    """
    lines = said.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(TRACEBACK)]
    if not starts or not has_traceback:
        return "\n".join(lines[-_LINES_WITHOUT_TRACEBACK:]).strip("\n")
    start = starts.pop()
    error = next((line for line in lines[start + 1 :] if not line.startswith(" ")), "")
    if _USERS_MISTAKE.match(error):
        return error
    while starts and any(line.startswith(_CHAINED) for line in lines[starts[-1] : start]):
        start = starts.pop()
    return "\n".join(line for line in lines[start:] if not _LOG.match(line)).strip("\n")


def unquoted(error: str) -> list[str]:
    """Return the lines of an error without a traceback's indented lines, which quote files."""
    return [line for line in error.splitlines() if not line.startswith(" ")]


# Why a process has ended ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The cause of a process's end.

    Attributes:
        cause: `""` for success; `"memory"` or `"disk"` if the resource ran out; `"user"` for a
            mistake that the user can correct; `"signal"` for a signal from outside or of a crash;
            `"error"` for all further errors.
        how: The form of the end, such as `"exit code 3"` or `"signal SIGSEGV"`.
        line: The cause in a line; for `"signal"` and `"error"`, the line includes `how`.
        error: The traceback, or the last lines; empty where `line` is enough.
        is_said: Whether the process or kdist has reported the cause; otherwise the cause is a guess
            from the form of the end.
    """

    cause: Literal["", "memory", "disk", "user", "signal", "error"]
    how: str
    line: str = ""
    error: str = ""
    is_said: bool = True


OUT_OF_MEMORY = "out of memory"
# Signals of a program after a failed allocation: the program aborts or crashes.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def judge(code: int, said: str, answers: Mapping[str, Any] | None = None) -> Verdict:
    """Return the cause of a process's end; a kill by signal N is `-N`, or 128 + N as in a shell."""
    answers = answers or {}
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == 0:
        return Verdict(cause="", how=how)
    if says_full_disk(said):
        return Verdict(cause="disk", how=how, line=_last_line(last_error(said)))
    if "mistake" in answers:
        line = str(answers["mistake"])
        if says_out_of_memory(line):
            return Verdict(cause="memory", how=how, line=_with_memory(line))
        return Verdict(cause="user", how=how, line=line)
    is_killed = shell_code(code) == 128 + signal.SIGKILL
    error = last_error(said)
    # A frozen process is killed, too. A watching process may have reported this in `said`.
    told = _OWN_ERROR.findall(error) or (_OWN_ERROR.findall(said) if is_killed else [])
    is_crash = -code in _CRASHES
    lines = [told[-1][:_TAIL]] if told else unquoted(said if is_crash else error)
    words = next((line.strip()[:_TAIL] for line in lines if says_out_of_memory(line)), "")
    last = told[-1][:_TAIL] if told else _last_line(error)
    if words:
        return Verdict(cause="memory", how=how, line=_with_memory(words), error=error)
    if is_killed and not told:
        line = f"{OUT_OF_MEMORY}, most likely: its process was killed"
        return Verdict(cause="memory", how=how, line=line, error=error, is_said=False)
    if is_crash and answers.get("limited"):  # a failed allocation ends in a crash
        line = f"{OUT_OF_MEMORY}, most likely: {last or 'its process crashed'}"
        return Verdict(cause="memory", how=how, line=line, error=error, is_said=False)
    return Verdict(
        cause="signal" if code < 0 else "error",
        how=how,
        line=f"{last or 'it printed no error'} ({how})",
        error=error,
        is_said=bool(last),
    )


def _with_memory(line: str) -> str:
    return line if line.startswith(OUT_OF_MEMORY) else f"{OUT_OF_MEMORY}: {line}"


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if not _NO_ERROR.match(line)]
    return lines[-1][-_TAIL:] if lines else ""


# Out of memory --------------------------------------------------------------------------------

# Messages of Python, NumPy, C++, the kernel, TensorFlow and CUDA. `out_of_memory` is not among them
# because file names in tracebacks contain it.
_WORDS = re.compile(
    r"out of memory|OutOfMemory|MemoryError|ResourceExhausted|bad_alloc|\bOOM\b"
    r"|(cannot|unable to|failed to) allocate|Dst tensor is not initialized",
    re.I,
)
# oneDNN's `dnnl_out_of_memory` is 1: with TensorFlow 2.21 a convolution "could not create a
# primitive".
_ONEDNN = "Status: 1, message"
# Messages of Python and the C++ library about a thread that finds no memory for its stack.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")


def is_out_of_memory(error: BaseException, *, limited: bool = False) -> bool:
    """Whether an exception or its cause says that the memory of a CPU or GPU ran out.

    With `limited` memory, the failed start of a thread says so, too.
    """
    # Exceptions are compared by name, because TensorFlow may not be imported.
    names = {kind.__name__ for kind in type(error).__mro__}
    message = str(getattr(error, "message", None) or error)
    if names & {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}:
        return True
    if "AbortedError" in names and _ONEDNN in message:
        return True
    if "InternalError" in names and says_out_of_memory(message):
        return True
    if limited and any(words in message for words in _NO_THREAD):
        return True
    hidden = None if error.__suppress_context__ else error.__context__
    cause = error.__cause__ or hidden
    return cause is not None and is_out_of_memory(cause, limited=limited)


def says_out_of_memory(text: str) -> bool:
    """Whether a message says that memory ran out."""
    return _WORDS.search(text) is not None
