"""What of a step every replica computes for the whole batch, and where it was written."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .placements import Partial, Replicate, Shard
from .plan import Item, Planner
from .sizes import AnySize, Size

_FREE = {"Const", "NoOp", "Placeholder", "ReadVariableOp"}
_NOMINAL = 64  # for a size that only the data tell
_CONTRACTIONS = ("MatMul", "BatchMatMul", "Einsum", "Conv", "DepthwiseConv")
_FELT = 0.01  # a smaller share of the work is not worth a message

_logger = logging.getLogger("kdist")


@dataclass(frozen=True)
class Explanation:
    """How a step was divided.

    Args:
        operations: The number of operations that compute something.
        whole: Types and lines of the operations that needed rows of all replicas, and so are
            computed whole by each; and how many they are.
        share: The share of the work that every replica does for the whole batch, 0 to 1; counted
            in multiplications and values, with 64 rows where their number is not fixed.
        rounds: The number of times that replicas wait for each other.
    """

    operations: int
    whole: tuple[tuple[str, str, int], ...]
    share: float
    rounds: int

    def message(self) -> str | None:
        """Return a line about what is computed whole; `None` if that is not worth one."""
        if not self.whole or self.share < _FELT:
            return None
        lines = list(dict.fromkeys(f"{line} ({kind})" for kind, line, _ in self.whole))
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
        return (
            f"kdist: about {self.share:.0%} of this step cannot be divided, so that every replica"
            f" computes it for the whole batch (right, but no faster): {', '.join(lines[:3])}{more}"
        )


def explain(planner: Planner, rounds: int) -> Explanation:
    """Say how a planned step was divided."""
    computing = [item for item in planner.items if item.op.type not in _FREE]
    undivided = [item for item in computing if item.whole and not _is_divided(item)]
    found = Counter((item.op.type, line_of(item.op)) for item in undivided)
    work = [(_work(planner, item), _is_whole(planner, item)) for item in computing]
    total = sum(amount for amount, _ in work)
    whole = sum(amount for amount, is_whole in work if is_whole)
    lines = tuple((kind, line, count) for (kind, line), count in found.items())
    return Explanation(len(computing), lines, whole / max(total, 1), rounds)


def described(planner: Planner) -> list[str]:
    """Describe the operations of a step, the same on all workers that have planned the same."""
    return [
        f"{item.op.type}{[f'{o.dtype.name}{o.shape}' for o in item.op.outputs]} at {item.time} as"
        f" {', '.join(map(_kind, item.decision.out))}"
        for item in planner.items
    ]


def _kind(placement: Any) -> str:
    if isinstance(placement, Shard):
        return f"shard({placement.axis}, {len(placement.rows.segments)})"
    return placement.op if isinstance(placement, Partial) else type(placement).__name__


def say(explanation: Explanation, said: set[str]) -> None:
    """Log what of a step is computed whole, once for the same lines."""
    message = explanation.message()
    if message is not None and message not in said:
        said.add(message)
        _logger.warning(message)


def _is_whole(planner: Planner, item: Item) -> bool:
    """Whether every replica computes values whose number grows with the batch."""
    return (item.whole and not _is_divided(item)) or any(
        isinstance(placement, Replicate) and _depends_on_rows(planner.dims(output))
        for output, placement in zip(item.op.outputs, item.decision.out, strict=True)
    )


def _is_divided(item: Item) -> bool:
    """Whether each replica computes a part, although it needs rows of the others."""
    return any(isinstance(placement, Shard | Partial) for placement in item.decision.out)


def _depends_on_rows(dims: list[AnySize] | None) -> bool:
    return any(isinstance(size, Size) and size.spaces() for size in dims or ())


def _work(planner: Planner, item: Item) -> float:
    made = sum(_elements(planner, output) for output in item.op.outputs)
    if not item.op.type.startswith(_CONTRACTIONS) or len(item.inputs) < 2:
        return made
    # Of a matrix product (m, k) x (k, n): m * k * n.
    return math.sqrt(made * math.prod(_elements(planner, t) for t in item.inputs[:2]))


def _elements(planner: Planner, tensor: Any) -> float:
    return math.prod(map(_nominal, planner.dims(tensor) or ()))


def _nominal(size: AnySize) -> float:
    if isinstance(size, int):
        return size
    return float(
        abs(sum(factor * _NOMINAL ** len(symbols) for symbols, factor in size.terms.items()))
    )


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
