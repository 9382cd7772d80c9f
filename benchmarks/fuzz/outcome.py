"""How a command line ended, and what is wrong with it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

MOST_BYTES = 2 * 2**30
MOST_SECONDS = 30
"""Of the processor; ten times as many of the wall clock, as a machine may have other work."""
_MOST_CHARACTERS = 1200
_FEWEST_CHARACTERS = 25


class FindingError(AssertionError):
    """What is wrong with how a command line ended."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command line ended.

    Attributes:
        code: Its exit code; `None` where training would have begun.
        output: What it wrote to standard output.
        errors: What it wrote to standard error.
        peak_bytes: The most memory that its process had.
        changed: Files and folders that differ from before.
    """

    code: int | None
    output: str
    errors: str
    peak_bytes: int
    changed: Mapping[str, object]

    @property
    def end(self) -> str:
        """The exit code, or that training would begin."""
        return "training begins" if self.code is None else f"exit code {self.code}"

    def check(self) -> None:
        """Check that it ended in a documented way.

        Raises:
            FindingError: It did not.
        """
        if self.peak_bytes > MOST_BYTES:
            raise FindingError(f"took {self.peak_bytes / 2**30:.1f} GiB")
        if self.code not in (None, 0, 2):
            raise FindingError(f"{self.end}: {self.errors[-3000:]}{_trace(self.errors)}")
        if "Traceback (most recent call last)" in self.output + self.errors:
            raise FindingError(f"{self.end}, with a traceback: {self.errors[-3000:]}")
        if self.code == 2:
            _check_message(self.errors)
            if self.changed:
                raise FindingError(f"left behind: {sorted(self.changed)[:5]}; {self.errors}")


def _check_message(errors: str) -> None:
    """Refuse what is not a single printable line of a reasonable length."""
    line, *more = errors.splitlines() or [""]
    if more or not line.startswith("kdist: error: ") or not line.isprintable():
        raise FindingError(f"no message in one line: {errors[-3000:]!r}")
    if not _FEWEST_CHARACTERS <= len(line) <= _MOST_CHARACTERS:
        raise FindingError(f"a message of {len(line)} characters: {line!r}")


def _trace(errors: str) -> str:
    """The end of the file that the message of an unexpected error names."""
    name = errors.partition("the trace is in ")[2].partition(", --debug")[0]
    if not name:
        return ""
    trace = Path(name).read_text(encoding="utf-8")
    Path(name).unlink()
    return trace[-3000:]
