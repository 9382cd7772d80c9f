"""`Finding`: what was found, and how to fix it; findings as a screen, and as JSON."""

import contextlib
import dataclasses
import getpass
import io
import json
import platform
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

State = Literal["good", "slow", "broken", "absent"]
"""`slow` works, but not as fast as it could; `absent` is not there, and need not be."""
_STYLES = {"good": "green", "slow": "yellow", "broken": "bold red", "absent": "dim"}
_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Finding:
    """A line of the screen.

    Attributes:
        name: What was examined.
        state: How it is.
        text: What was found.
        remedy: How to fix it; empty if there is nothing to fix.
    """

    name: str
    state: State
    text: str
    remedy: str = ""


Probe = Callable[[], Finding | Iterable[Finding]]
"""Examines one thing, or several of a kind."""


def examine(name: str, probe: Probe) -> list[Finding]:
    """Return what a probe finds; one that fails is a line, and does not end the others.

    Args:
        name: What it examines.
        probe: It.
    """
    try:
        found = probe()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:
        return [
            Finding(
                name,
                "broken",
                f"the check failed: {type(error).__name__}: {error}",
                "report this, with the output of kdist doctor --json",
            )
        ]


def screen_lines(
    findings: Sequence[Finding], *, width: int = _WIDTH, colour: bool = False
) -> list[str]:
    """Return a line for each finding, with its remedy below it, and the counts at the end.

    Args:
        findings: What was found.
        width: Characters of a line.
        colour: Whether the lines go to a terminal.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        words = Text(one.text)
        if one.remedy:
            words.append(f"\n→ {one.remedy}", style="bold" if one.state == "broken" else "")
        table.add_row(Text(one.state, style=_STYLES[one.state]), one.name, words)
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    console.print(table)
    return [*(line.rstrip() for line in text.getvalue().splitlines()), "", count_line(findings)]


def count_line(findings: Sequence[Finding]) -> str:
    """Return how many findings there are of each state: `14 good, 1 slow, 0 broken, 6 absent`."""
    counts = Counter(one.state for one in findings)
    return ", ".join(f"{counts[state]} {state}" for state in ("good", "slow", "broken", "absent"))


def as_json(findings: Sequence[Finding], private: Mapping[str, str] | None = None) -> str:
    """Return the findings as JSON, without the names of user, home folder and machine.

    Args:
        findings: What was found.
        private: What is replaced, with its replacement; by default those of this machine.
    """
    words = private_words() if private is None else private
    report = {
        "system": platform.platform(),
        "findings": [
            {
                **dataclasses.asdict(one),
                "text": anonymous(one.text, words),
                "remedy": anonymous(one.remedy, words),
            }
            for one in findings
        ],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def private_words() -> dict[str, str]:
    """Return the names of user, home folder and machine, with what stands in their place."""
    words = {}
    # An id without a name, as in many containers, may have neither.
    with contextlib.suppress(RuntimeError):
        home = str(Path.home())
        if len(home) > 1:
            words[home] = "~"
    with contextlib.suppress(KeyError, OSError):
        words[getpass.getuser()] = "USER"
    words[socket.gethostname()] = "HOST"
    return words


def anonymous(text: str, private: Mapping[str, str]) -> str:
    """Replace private words, the longest first, where they are no part of a longer word."""
    for word in sorted(filter(None, private), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", private[word], text)
    return text
