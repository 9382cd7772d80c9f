"""`Finding`: what was found, and how to fix it; findings as a screen, and as JSON."""

import dataclasses
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

State = Literal["good", "slow", "broken", "absent"]
"""`slow` works, but not as fast as it could; `absent` is not there, and need not be."""
_STYLES: dict[State, str] = {
    "good": "green",
    "slow": "yellow",
    "broken": "bold red",
    "absent": "dim",
}
_WIDTH = 100  # where the screen has none


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


def print_findings(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print a line for each finding, with its remedy below it, and how many are of each state."""
    screen = console or Console()
    if not screen.is_terminal:
        screen.width = _WIDTH
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        words = Text(one.text)
        if one.remedy:
            words.append(f"\n→ {one.remedy}", style="bold" if one.state == "broken" else "")
        table.add_row(Text(one.state, style=_STYLES[one.state]), Text(one.name), words)
    screen.print(table)
    counts = Counter(one.state for one in findings)
    screen.print(f"\n{', '.join(f'{counts[state]} {state}' for state in _STYLES)}", highlight=False)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON, with `~` for the user's home folder."""
    home = os.path.expanduser("~")
    lines = [dataclasses.asdict(one) for one in findings]
    if len(home) > 1:  # not the folder `/`
        lines = [{key: text.replace(home, "~") for key, text in one.items()} for one in lines]
    report = {"system": platform.platform(), "findings": lines}
    return json.dumps(report, indent=2, ensure_ascii=False)
