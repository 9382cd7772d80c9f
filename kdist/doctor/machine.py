"""`Machine`: what probes read, so that tests can put another machine in its place."""

import contextlib
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_MOST_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: Its exit code.
        text: What it printed, errors too.
    """

    code: int
    text: str

    @property
    def answer(self) -> str:
        """The last line that is a JSON object; empty if there is none."""
        # Libraries may print before it and as they end.
        return next((line for line in self.text.splitlines()[::-1] if line.startswith("{")), "")


def run_command(arguments: Sequence[str], *, seconds: float = _MOST_SECONDS) -> Ended | None:
    """Run a command; `None` if it is not installed.

    Raises:
        TimeoutError: It has not ended in time. It is killed, but not waited for: a command that
            hangs in a driver cannot be killed.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - kdist's own commands
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError:
            return None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            raise TimeoutError(f"{arguments[0]} has not answered in {seconds:g} seconds") from None
        output.seek(0)
        return Ended(code, output.read().decode(errors="replace"))


def _cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as this process sees it.

    Attributes:
        root: The folder with `dev`, `proc` and `sys`.
        environment: The variables of the environment.
        cores: Those that this process may use.
        run: Runs a command, as `run_command` does.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    cores: frozenset[int] = dataclasses.field(default_factory=_cores)
    run: Callable[[Sequence[str]], Ended | None] = run_command

    def read(self, path: str) -> str:
        """Return the text of a file below `root`; empty if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
