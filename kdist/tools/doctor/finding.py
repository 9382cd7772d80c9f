"""`Finding`: a result of the examination; findings printed, and as JSON."""

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
"""`slow` works below its possible speed; `absent` is missing, and is not required."""
_STYLES: dict[State, str] = {
    "good": "green",
    "slow": "yellow",
    "broken": "bold red",
    "absent": "dim",
}
_WIDTH = 100  # when the output is no terminal


@dataclasses.dataclass(frozen=True)
class Finding:
    """A result of the examination: a line on the screen.

    Attributes:
        name: The examined part of the machine.
        state: State of this part.
        text: The facts that were found.
        remedy: Instructions to fix the part; empty if there is nothing to fix.
    """

    name: str
    state: State
    text: str
    remedy: str = ""


def print_findings(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print a line per finding with its remedy below, and the number of findings in each state."""
    screen = console or Console()
    if not screen.is_terminal:
        screen.width = _WIDTH
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        words = Text(finding.text)
        if finding.remedy:
            style = "bold" if finding.state == "broken" else ""
            words.append(f"\n→ {finding.remedy}", style=style)
        state = Text(finding.state, style=_STYLES[finding.state])
        table.add_row(state, Text(finding.name), words)
    screen.print(table)
    counts = Counter(finding.state for finding in findings)
    screen.print(f"\n{', '.join(f'{counts[state]} {state}' for state in _STYLES)}", highlight=False)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON, with `~` for the user's home folder."""
    home = os.path.expanduser("~")
    lines = [dataclasses.asdict(finding) for finding in findings]
    if len(home) > 1:  # not the folder `/`
        lines = [{key: text.replace(home, "~") for key, text in line.items()} for line in lines]
    report = {"system": platform.platform(), "findings": lines}
    return json.dumps(report, indent=2, ensure_ascii=False)
