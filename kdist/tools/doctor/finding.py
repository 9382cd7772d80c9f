"""`Finding`: a result of the examination, and the printed list of findings."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

State = Literal["good", "slow", "broken", "absent"]
"""`slow` works below its possible speed; `absent` is missing, and is not required."""


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


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a line per finding with its remedy below, and the number of findings in each state."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.state:6}  {finding.name:{width}}  {finding.text}")
        if finding.remedy:
            print(f"{'':{width + 10}}→ {finding.remedy}")
    counts = Counter(finding.state for finding in findings)
    print(f"\n{', '.join(f'{counts[state]} {state}' for state in get_args(State))}")
