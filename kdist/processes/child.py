"""`Child`: a process of kdist and its answers; no child outlives its parent.

kdist starts all processes as a `Child`: workers, runs of a sweep, trials, tries of a batch size.
`process_exit.py` finds the cause of a child's end.
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
from typing import IO, Any

from ..signals import hold_signals
from .process_exit import ProcessExit, explain_exit

PIPE = subprocess.PIPE
_EXEC_CHILD = Path(__file__).with_name("exec_child.py")
_PROCESSES = Path("/proc")
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
# Environment variable with the marks of a child and its ancestors, joined like a path. All
# processes that the child starts inherit the variable, by which `kill` finds them.
_MARK = "KDIST_CHILD"
_ANSWERS = "KDIST_CHILD_ANSWERS"  # environment variable with the file descriptor of the answers
_PAUSE_SECONDS = 0.01
# Longest wait after a kill: a process that hangs in a driver cannot be killed.
_KILL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Resources:
    """GPUs and cores of a child.

    Attributes:
        gpus: Names as in `CUDA_VISIBLE_DEVICES`; `None` leaves this variable unchanged.
        cores: Cores that the child may use; an empty tuple keeps the cores of this process.
    """

    gpus: tuple[str, ...] | None = None
    cores: tuple[int, ...] = ()


class Child:
    """A process in a separate session that ends when this process ends.

    A terminal's Ctrl-C reaches only this process, which then ends its children. `kill`, or the end
    of a `with` block, kills the child and all processes that it has started, in any session. After
    a signal during the start (`Interrupted`), the child is killed.

    The program gets `arguments` as its last argument (see `read_arguments`), and `environment` in
    addition to the environment of this process. Its output and errors go by default to the streams
    of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        arguments: Mapping[str, Any] | None = None,
        resources: Resources | None = None,
        environment: Mapping[str, str] | None = None,
        output: int | IO[Any] | None = None,
        errors: int | IO[Any] | None = None,
    ) -> None:
        program = shutil.which(command[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        resources = resources or Resources()
        last_argument = [] if arguments is None else [json.dumps(arguments)]
        cores = ",".join(map(str, resources.cores))
        self._mark = "/".join(filter(None, (os.environ.get(_MARK), secrets.token_hex(8))))
        self._answers: dict[str, Any] = {}
        self._answers_file: IO[bytes] | None = tempfile.TemporaryFile()  # noqa: SIM115 - in `kill`
        descriptor = self._answers_file.fileno()
        added = {_MARK: self._mark, _ANSWERS: str(descriptor)}
        if resources.gpus is not None:
            added[VISIBLE_GPUS] = ",".join(resources.gpus)
        with hold_signals() as received:  # a process without a reference would never be ended
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the caller's own program
                    [
                        *(sys.executable, "-I", str(_EXEC_CHILD), str(os.getpid()), cores),
                        *(program, *command[1:], *last_argument),
                    ],
                    env={**os.environ, **(environment or {}), **added},
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
    def exit_code(self) -> int | None:
        """The exit code, `-N` after a kill by signal number N; `None` while the process runs."""
        return self._process.poll()

    @property
    def answers(self) -> Mapping[str, Any]:
        """The values that the child has sent so far; the last value of each name."""
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
            raise TimeoutError(f"process {self.pid} has not ended in {seconds} s") from None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether a signal, for example SIGSTOP, has stopped the process.

        A stopped process handles no signal besides SIGCONT and SIGKILL.
        """
        with contextlib.suppress(OSError):
            state = (_PROCESSES / str(self.pid) / "stat").read_text().rpartition(")")[2]
            return self.exit_code is None and state.split()[0] in "Tt"
        return False

    def kill(self) -> None:
        """Kill the process and all processes that it has started, in any session.

        Processes in other sessions are found in `/proc` by their environment. A process is not
        found if it has changed its environment, or if the system has no `/proc`.
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

    def wait_for_exit(self, errors: str = "") -> ProcessExit:
        """Wait for the process, and return the cause of its end; `errors` is its standard error."""
        return explain_exit(self.wait(), errors, self.answers)


def _kill_marked(mark: bytes) -> bool:
    """Kill all processes whose mark is `mark` or begins with it: a child and all its descendants.

    Return whether there were such processes.
    """
    wanted = re.compile(rb"(?:^|\0)%s=%s(?:/|\0|$)" % (_MARK.encode(), re.escape(mark)))
    found = False
    for path in _PROCESSES.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to a different user
            if wanted.search(path.read_bytes()):
                found = True
                os.kill(int(path.parent.name), signal.SIGKILL)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletedChild:
    """A child that has ended: its streams as text, and the values it passed to `send_answer`.

    The exit code is `-N` after a kill by signal number N.
    """

    exit_code: int
    output: str
    errors: str
    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def exit(self) -> ProcessExit:
        """The cause of the end."""
        return explain_exit(self.exit_code, self.errors, self.answers)


def run_child(
    command: Sequence[str],
    *,
    seconds: float | None = None,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> CompletedChild:
    """Run a program as a `Child` until it ends, and kill the processes that it has started.

    Raises:
        FileNotFoundError: The program does not exist.
        TimeoutError: The program has not ended after `seconds`, and is killed.
    """
    # Files instead of pipes: a full pipe blocks the child, and a surviving descendant that holds a
    # pipe open blocks its reader.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with Child(
            command, arguments=arguments, environment=environment, output=output, errors=errors
        ) as child:
            exit_code = child.wait(seconds)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return CompletedChild(
            exit_code=exit_code, output=texts[0], errors=texts[1], answers=child.answers
        )


def read_arguments() -> Any:
    """In a child, return the arguments that the parent passed."""
    return json.loads(sys.argv[-1])


def send_answer(**values: Any) -> None:
    """In a child, send values to the parent as a line of JSON; without effect in other processes.

    The name `mistake` is for the message of the user's mistake that ended the child; `explain_exit`
    reads it. All other names have a meaning only for the child's program and its caller.
    """
    if _ANSWERS in os.environ:
        os.write(int(os.environ[_ANSWERS]), f"{json.dumps(values)}\n".encode())
