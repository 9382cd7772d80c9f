"""What of a step is computed whole on every replica, and where it was written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .plan import Item, Planner

_FREE = {"Const", "NoOp", "Placeholder", "ReadVariableOp"}


@dataclass
class Explanation:
    """How a step was divided.

    Args:
        operations: The number of operations that compute something.
        whole: Those that every replica computes whole, as the rows of others are gathered.
        rounds: The number of times that replicas wait for each other.
    """

    operations: int
    whole: list[Item]
    rounds: int
    planner: Planner | None = None

    def lines(self) -> list[tuple[str, str, int]]:
        """Return type and line of the operations computed whole, and how many they are."""
        found = Counter((item.op.type, line_of(item.op)) for item in self.whole)
        return [(kind, line, count) for (kind, line), count in found.items()]


def explain(planner: Planner, program: Any) -> Explanation:
    """Say how a planned step was divided."""
    computing = [item for item in planner.items if item.op.type not in _FREE]
    whole = [item for item in computing if item.whole]
    return Explanation(len(computing), whole, program.rounds, planner)


def line_of(op: Any) -> str:
    """Return the user's line that made an operation, or else that of Keras."""
    frames = list(reversed(op.traceback or []))
    for frame in frames:
        if "site-packages" not in frame.filename and "/kdist/" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    for frame in frames:
        if "/keras/" in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return "unknown"
