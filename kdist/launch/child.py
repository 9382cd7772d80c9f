"""`Child`: a process that this one starts, what it answers, why it ended, and that none is left.

Everything that kdist starts is a `Child`: workers, runs of a sweep, trials, tries of a batch size.
Here, and nowhere else, it is decided what is out of memory. Nothing here imports TensorFlow.
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
# Inherited by all that a child starts: its path, as of a folder, from the first parent on.
_MARK = "KDIST_CHILD"
_ANSWERS = "KDIST_CHILD_ANSWERS"  # the file descriptor for them
_PAUSE_SECONDS = 0.01
# One that hangs in a driver cannot be killed.
_KILL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Share:
    """What a child has of its machine.

    Attributes:
        gpus: Names as in `CUDA_VISIBLE_DEVICES`; `None` leaves that variable as it is.
        cores: On which it runs; none leaves it those of this process.
    """

    gpus: tuple[str, ...] | None = None
    cores: tuple[int, ...] = ()


class Child:
    """A process with a session of its own, that ends when this one does.

    A terminal's Ctrl-C is for this process, which then ends its children. A `with` block, or
    `kill`, leaves none of them, nor what they have started, in whatever session that is.

    Args:
        command: The program and its arguments.
        orders: Passed to the program as its last argument, for `orders`.
        share: Its GPUs and cores.
        environment: Variables besides those of this process.
        output: Where it prints to; by default where this process does.
        errors: The same of its standard error.

    Attributes:
        pid: Its number.

    Raises:
        FileNotFoundError: There is no such program.
        Interrupted: A signal arrived while it was started; it is killed.
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
        with hold_signals() as received:  # a process that nobody knows would not be ended
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
        """What it prints and its errors, as far as they are `PIPE`."""
        return self._process.stdout, self._process.stderr

    @property
    def code(self) -> int | None:
        """Its exit code, negative of a signal that killed it; `None` while it runs."""
        return self._process.poll()

    @property
    def answers(self) -> Mapping[str, Any]:
        """What it has said by `answer` so far; of values of the same name the last."""
        if self._answers_file is not None:
            file = self._answers_file.fileno()
            # The position in the file is the child's, too, and not to be moved.
            for line in os.pread(file, os.fstat(file).st_size, 0).splitlines():
                with contextlib.suppress(ValueError):  # it was killed within the line
                    self._answers |= json.loads(line)
        return self._answers

    def wait(self, seconds: float | None = None) -> int:
        """Return its exit code, once it has ended.

        Raises:
            TimeoutError: It has not ended after so many seconds.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} has not ended") from None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it, which then handles no other signal."""
        with contextlib.suppress(OSError):
            state = (_PROCESSES / str(self.pid) / "stat").read_text().rpartition(")")[2]
            return self.code is None and state.split()[0] in "Tt"
        return False

    def kill(self) -> None:
        """Kill it and all that it has started, also in sessions of their own.

        Nothing is found there where the system has no `/proc`, or a program has changed its
        environment.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        until = time.monotonic() + _KILL_SECONDS
        while _kill_marked(self._mark.encode()) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)  # they may start another before they end
        with contextlib.suppress(TimeoutError):
            self.wait(_KILL_SECONDS)
        if self._answers_file is not None:
            _ = self.answers  # kept
            self._answers_file.close()
            self._answers_file = None

    def verdict(self, said: str = "") -> "Verdict":
        """Return why it ended.

        Args:
            said: What it wrote to its standard error.
        """
        return judge(self.wait(), said, self.answers)


def _kill_marked(mark: bytes) -> bool:
    """Kill the processes with this mark, or one below it; returns whether there were any."""
    wanted = re.compile(rb"(?:^|\0)%s=%s(?:/|\0|$)" % (_MARK.encode(), re.escape(mark)))
    found = False
    for path in _PROCESSES.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if wanted.search(path.read_bytes()):
                found = True
                os.kill(int(path.parent.name), signal.SIGKILL)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A child that has ended.

    Attributes:
        code: Its exit code, negative of a signal that killed it.
        output: What it printed.
        errors: What it wrote to its standard error.
        answers: What it has said by `answer`.
    """

    code: int
    output: str
    errors: str
    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> "Verdict":
        """Why it ended."""
        return judge(self.code, self.errors, self.answers)


def run(
    command: Sequence[str],
    *,
    seconds: float | None = None,
    orders: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program until it ends, as `Child`; nothing that it has started is left.

    Raises:
        FileNotFoundError: There is no such program.
        TimeoutError: It has not ended after so many seconds, and is killed.
    """
    # Files, not pipes, which others may hold open, and which block a child when they are full.
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
    """In a child: what it has to do."""
    return json.loads(sys.argv[-1])


def answer(**values: Any) -> None:
    """In a child: say something to the process that has started it, as a line of JSON.

    Args:
        **values: `mistake` is a user's that it ended with, in words; `error` the text of an error
            that it saw elsewhere; `limited` whether its memory is; all else is between the two.
    """
    if _ANSWERS in os.environ:
        os.write(int(os.environ[_ANSWERS]), f"{json.dumps(values)}\n".encode())


def shell_code(code: int) -> int:
    """The exit code as a shell has it: 128 and the number of the signal that killed a process."""
    return 128 - code if code < 0 else code


# What a process has said last -----------------------------------------------------------------

# Of an error; of a worker that hangs, in Python's words if TensorFlow holds its lock; of a crash.
TRACEBACK = (
    "Traceback (most recent call last):",
    "kdist: no step has ended",
    "kdist: error: worker",
    "Timeout (",
    "Fatal Python error:",
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# What TensorFlow logs as connections end, which is no part of the error before it.
_LOG = re.compile(r"[EIW]\d{4} |Additional GRPC error information|:\S+:Error received from peer")
# What lines behind an error may be that is not part of it.
_NO_ERROR = re.compile(r"^\s*$|^[IW]\d{4} |^\d{4}-\d\d-\d\d .*: [IW] ")
_USERS_MISTAKE = re.compile(r"(kdist\.errors\.)?UserError: ")
# What kdist says where it ends a process; a launcher writes the number of a worker before it.
_OWN_ERROR = re.compile(r"^(?:\[\d+\] )?kdist: error: (.+)$", re.MULTILINE)
_LINES_WITHOUT_TRACEBACK = 20
_TAIL = 400


def last_error(said: str, *, has_traceback: bool = True) -> str:
    """Return the last traceback, with those that it was chained to, or the last lines.

    Of a mistake of the user's, which says all by itself, only its line.

    Args:
        said: What a process wrote to its standard error.
        has_traceback: Whether the last traceback is that of the error; otherwise the program has
            printed it and gone on.
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
    """Return the lines of an error without those of a traceback that name files and quote them."""
    return [line for line in error.splitlines() if not line.startswith(" ")]


# Why a process has ended ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Why a process ended.

    Attributes:
        cause: `""` if it did what it should; `"memory"` and `"disk"`, of which there was none left;
            `"user"` for a mistake that the user can mend; `"signal"` that somebody sent, or of a
            crash; `"error"` for any other.
        how: Its end, such as `"exit code 3"` or `"signal SIGSEGV"`.
        line: The cause in one line, with `how` where it does not say it.
        error: The traceback, or the last lines.
        is_said: Whether the process, or kdist, has said so; otherwise it is what the end suggests.
    """

    cause: Literal["", "memory", "disk", "user", "signal", "error"]
    how: str
    line: str = ""
    error: str = ""
    is_said: bool = True


OUT_OF_MEMORY = "out of memory"
# What a program does of which an allocation fails: it ends itself, or crashes.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def judge(code: int, said: str, answers: Mapping[str, Any] | None = None) -> Verdict:
    """Return why a process ended.

    Args:
        code: Its exit code, negative of a signal that killed it, or as a shell has it.
        said: What it wrote to its standard error.
        answers: What it has said by `answer`.
    """
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
    # A process that froze is killed, too, and another one may have said so.
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
    if is_crash and answers.get("limited"):  # what a failed allocation ends in
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

# Of Python, NumPy, C++, the kernel, TensorFlow and CUDA. Not `out_of_memory`, which names files in
# tracebacks.
_WORDS = re.compile(
    r"out of memory|OutOfMemory|MemoryError|ResourceExhausted|bad_alloc|\bOOM\b"
    r"|(cannot|unable to|failed to) allocate|Dst tensor is not initialized",
    re.I,
)
# oneDNN's `dnnl_out_of_memory` is 1: with TensorFlow 2.21 a convolution "could not create a
# primitive".
_ONEDNN = "Status: 1, message"
# A thread needs memory for its stack: Python and the C++ library say so where there is none.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")


def is_out_of_memory(error: BaseException, *, limited: bool = False) -> bool:
    """Whether an exception, or one that led to it, says that a CPU's or GPU's memory ran out.

    Args:
        error: The exception.
        limited: Whether this process has a limit of memory, so that a thread that cannot start
            lacks memory, too.
    """
    # By name: without TensorFlow there is no exception of it.
    names = {one.__name__ for one in type(error).__mro__}
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
