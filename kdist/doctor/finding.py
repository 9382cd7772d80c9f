"""`Finding`: what a probe found, and how to fix it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal

State = Literal["good", "slow", "broken", "absent"]
"""`slow` works, but not as fast as it could; `absent` is not there, and need not be."""


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
