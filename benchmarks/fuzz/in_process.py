"""Runs command lines one after the other in this process, up to where training would begin.

Training, and all else that takes a device, begins with TensorFlow's import or with a process: both
end the case there. So what is wrong with a command line has to be said before.
"""

import contextlib
import functools
import importlib
import importlib.abc
import io
import os
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from .cases import Case
from .folder import contents, folder_of
from .outcome import MOST_BYTES, MOST_SECONDS, FindingError, Outcome

_WORKS = ("tensorflow", "keras", "keras_tuner")


class _Begins(BaseException):
    """Training would begin here."""


class _Hangs(BaseException):
    """The command line took too long."""


class _Stopper(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:  # noqa: ARG002
        if name in _WORKS:
            raise _Begins


def prepare(home: Path) -> None:
    """Keep this process from training and from the network.

    Args:
        home: An empty folder for the caches and settings of libraries.

    Raises:
        RuntimeError: TensorFlow is imported already.
    """
    if set(_WORKS) & set(sys.modules):
        raise RuntimeError("TensorFlow is imported: start a process of its own")
    sys.meta_path.insert(0, _Stopper())
    os.environ |= {"HOME": str(home), "WANDB_MODE": "offline", "COLUMNS": "80"}
    os.environ["https_proxy"] = "http://127.0.0.1:9"  # nobody answers there
    for name in ("WANDB_SWEEP_ID", "KERAS_HOME"):
        os.environ.pop(name, None)
    for name in ("kdist.report.write_report", "wandb"):
        importlib.import_module(name)  # now, as a case has little time
    from kdist.data import image_files

    # They take a while, and are the same each time or drawn by the cases in processes.
    image_files.read_sample = functools.cache(image_files.read_sample)
    # Downloads import Keras.
    image_files._download = mock.Mock(side_effect=image_files.DownloadError("no network"))


def run(case: Case) -> Outcome:
    """Run a case.

    Raises:
        FindingError: It hangs.
    """
    with folder_of(case) as folder, contextlib.chdir(folder):
        before = contents(folder)
        out, err = _stream("strict"), _stream("backslashreplace")  # as Python's own two
        try:
            with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = _call(case.arguments)
        except _Begins:
            code = None
        except _Hangs as hang:
            frames = "".join(traceback.format_tb(hang.__traceback__)[-6:])
            raise FindingError(f"no end within {MOST_SECONDS} s:\n{frames}") from None
        return Outcome(
            code=code,
            output=_text(out),
            errors=_text(err),
            peak_bytes=_peak_bytes(),
            changed=dict(contents(folder).items() ^ before.items()),
        )


def _peak_bytes() -> int:
    """The most memory that this process had; `ru_maxrss` is also that of the one that began it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _call(arguments: Sequence[str]) -> Any:
    from kdist.cli import main

    sys.argv = ["kdist", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Start no process, and take neither all time nor all memory."""

    def begin(*_: Any, **__: Any) -> None:
        raise _Begins

    def end(*_: Any) -> None:
        raise _Hangs

    timers = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, end) for number in timers}
    # Not the address space, of which a library reserves more than it uses.
    memory = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (2 * MOST_BYTES, memory[1]))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * MOST_SECONDS)
    try:
        with mock.patch.object(subprocess.Popen, "__init__", begin):
            yield
    finally:
        for number, timer in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
        resource.setrlimit(resource.RLIMIT_DATA, memory)
