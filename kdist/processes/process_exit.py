"""`explain_exit`: the cause of a process's end, from its exit code and standard error.

This module alone decides whether a process ran out of memory.
"""

import dataclasses
import re
import signal
from collections.abc import Mapping
from typing import Any, Literal


def shell_code(code: int) -> int:
    """Return the exit code that a shell shows: 128 + signal number for a killed process."""
    return 128 - code if code < 0 else code


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """The end of a process, and its cause.

    Attributes:
        cause: `""` for success; `"memory"` if memory ran out; `"user"` for a mistake of the user;
            `"signal"` for a signal from outside or of a crash; `"error"` for any other error.
        ending: The form of the end, such as `"exit code 3"` or `"signal SIGSEGV"`.
        line: The cause in a line; for `"signal"` and `"error"`, the line includes `ending`.
        error: The traceback, or the last lines; empty where `line` is enough.
        is_reported: Whether the process or kdist has reported the cause; otherwise the cause is a
            guess.
    """

    cause: Literal["", "memory", "user", "signal", "error"]
    ending: str
    line: str = ""
    error: str = ""
    is_reported: bool = True


OUT_OF_MEMORY = "out of memory"
# A program that fails to allocate memory often ends with one of these signals.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def explain_exit(code: int, errors: str, answers: Mapping[str, Any] | None = None) -> ProcessExit:
    """Return the cause of a process's end.

    Args:
        code: The exit code; -N, or 128 + N as in a shell, after signal number N.
        errors: Text of standard error.
        answers: Values that the process passed to `send_answer`.
    """
    answers = answers or {}
    ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == 0:
        return ProcessExit(cause="", ending=ending)
    if "mistake" in answers:
        line = str(answers["mistake"])
        if says_out_of_memory(line):
            return ProcessExit(cause="memory", ending=ending, line=_add_out_of_memory(line))
        return ProcessExit(cause="user", ending=ending, line=line)
    is_killed = shell_code(code) == 128 + signal.SIGKILL
    error = last_error(errors)
    # A frozen process is killed, too; then the process that watches it may have printed a report.
    reports = _KDIST_ERROR.findall(error) or (_KDIST_ERROR.findall(errors) if is_killed else [])
    report = reports[-1][:_LONGEST_LINE] if reports else ""
    is_crash = -code in _CRASHES
    lines = [report] if report else error_lines(errors if is_crash else error)
    memory = next((line.strip()[:_LONGEST_LINE] for line in lines if says_out_of_memory(line)), "")
    last = report or _last_line(error)
    if memory:
        return ProcessExit(
            cause="memory", ending=ending, line=_add_out_of_memory(memory), error=error
        )
    if is_killed and not report:
        line = f"most likely {OUT_OF_MEMORY}: the process was killed"
        return ProcessExit(cause="memory", ending=ending, line=line, error=error, is_reported=False)
    return ProcessExit(
        cause="signal" if code < 0 else "error",
        ending=ending,
        line=f"{last or 'the process printed no error'} ({ending})",
        error=error,
        is_reported=bool(last),
    )


def _add_out_of_memory(line: str) -> str:
    return line if line.startswith(OUT_OF_MEMORY) else f"{OUT_OF_MEMORY}: {line}"


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if not _NOT_PART_OF_ERROR.match(line)]
    return lines[-1][-_LONGEST_LINE:] if lines else ""


# Beginnings of the reports of an error, of a hanging worker and of a crash. Python itself reports a
# hanging worker (`Timeout (`) if TensorFlow holds Python's lock.
ERROR_STARTS = (
    "Traceback (most recent call last):",
    "kdist: no step has ended",
    "kdist: error: worker",
    "Timeout (",
    "Fatal Python error:",
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# TensorFlow's logs as connections end, which are no part of the error before them.
_CONNECTION_LOG = re.compile(
    r"[EIW]\d{4} |Additional GRPC error information|:\S+:Error received from peer"
)
# Lines after an error that are no part of the error: blank lines, INFO and WARNING logs.
_NOT_PART_OF_ERROR = re.compile(r"^\s*$|^[IW]\d{4} |^\d{4}-\d\d-\d\d .*: [IW] ")
_USERS_MISTAKE = re.compile(r"(kdist\.errors\.)?UserError: ")
# Message of kdist when it ends a process; a launcher puts the number of the worker in front.
_KDIST_ERROR = re.compile(r"^(?:\[\d+\] )?kdist: error: (.+)$", re.MULTILINE)
_LINES_WITHOUT_TRACEBACK = 20
_LONGEST_LINE = 400


def last_error(errors: str, *, has_traceback: bool = True) -> str:
    """Return the last traceback with the tracebacks chained to it, or the last lines.

    For a `UserError`, return only the line of its message, which is complete. If the program has
    gone on after the last traceback, this traceback is not the cause of the end: pass
    `has_traceback=False` for the last lines.
    """
    lines = errors.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(ERROR_STARTS)]
    if not starts or not has_traceback:
        return "\n".join(lines[-_LINES_WITHOUT_TRACEBACK:]).strip("\n")
    start = starts.pop()
    error = next((line for line in lines[start + 1 :] if not line.startswith(" ")), "")
    if _USERS_MISTAKE.match(error):
        return error
    while starts and any(line.startswith(_CHAINED) for line in lines[starts[-1] : start]):
        start = starts.pop()
    return "\n".join(line for line in lines[start:] if not _CONNECTION_LOG.match(line)).strip("\n")


def error_lines(error: str) -> list[str]:
    """Return the lines of an error without a traceback's indented lines, which quote files."""
    return [line for line in error.splitlines() if not line.startswith(" ")]


# Messages of Python, NumPy, C++, the kernel, TensorFlow and CUDA. `out_of_memory` is not among them
# because file names in tracebacks contain it.
_MEMORY_MESSAGES = re.compile(
    r"out of memory|OutOfMemory|MemoryError|ResourceExhausted|bad_alloc|\bOOM\b"
    r"|(cannot|unable to|failed to) allocate|Dst tensor is not initialized",
    re.I,
)
# oneDNN's `dnnl_out_of_memory` is 1: with TensorFlow 2.21 a convolution "could not create a
# primitive".
_ONEDNN_OUT_OF_MEMORY = "Status: 1, message"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception or its cause says that the memory of a CPU or GPU ran out."""
    # Exceptions are compared by name, because this module must not import TensorFlow.
    names = {kind.__name__ for kind in type(error).__mro__}
    message = str(getattr(error, "message", None) or error)
    if names & {"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"}:
        return True
    if "AbortedError" in names and _ONEDNN_OUT_OF_MEMORY in message:
        return True
    if "InternalError" in names and says_out_of_memory(message):
        return True
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return cause is not None and is_out_of_memory(cause)


def says_out_of_memory(text: str) -> bool:
    """Whether a message says that memory ran out."""
    return _MEMORY_MESSAGES.search(text) is not None
