"""Processes that are killed, forked from one that has imported TensorFlow but not started it.

Each is a process of its own, with devices, threads and memory of its own. Only the imports, some
six seconds, are not repeated.
"""

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

Say = Callable[[Any], None]
"""Sends a value to the parent, as a line of JSON."""


class Forked:
    """A process that runs a function, and sends lines.

    Args:
        function: Called with `say`. What it returns is sent last, an exception as `{"error": …}`.

    Attributes:
        pid: Its number.
    """

    def __init__(self, function: Callable[[Say], Any]) -> None:
        sys.stdout.flush()
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # JAX warns of its threads, of which there are none before it is used.
            warnings.simplefilter("ignore")
            self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            _run(function, writing)
        os.close(writing)
        self._lines = os.fdopen(reading, encoding="utf-8")
        self._has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._lines.close()

    def __iter__(self) -> Iterator[Any]:
        for line in self._lines:
            if line.endswith("\n"):  # a killed process may have sent half of one
                yield json.loads(line)

    def receive(self) -> Any:
        """Return the next value; `None` if the process has ended."""
        return next(iter(self), None)

    def kill(self) -> list[Any]:
        """Kill it as `kill -9` does, and return what it had sent before."""
        if self._has_ended:
            return []
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._has_ended = True
        return list(self)


def result_of(function: Callable[[Say], Any]) -> Any:
    """Run a function in a forked process, and return the last that it sends."""
    with Forked(function) as process:
        last = None
        for value in process:
            last = value
        return last


def _run(function: Callable[[Say], Any], writing: int) -> None:
    def say(value: Any) -> None:
        os.write(writing, json.dumps(value).encode() + b"\n")

    if not os.environ.get("VERBOSE"):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
    try:
        say(function(say))
    except BaseException as error:
        traceback.print_exc()
        line = next(iter(str(error).splitlines()), "")
        say({"error": f"{type(error).__name__}: {line}"[:300]})
    finally:
        os._exit(0)
