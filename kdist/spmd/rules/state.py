"""Variables and other state that every replica has."""

from __future__ import annotations

from ..placements import AS_IS, REPLICATE, Replicate
from ..plan import Decision, Operation
from .registry import rule


@rule("ReadVariableOp", "VariableShape")
def read(op: Operation) -> Decision | None:
    """Read a replica's own copy."""
    if id(op.inputs[0]) in op.planner.shared:
        return None
    return Decision([AS_IS], [REPLICATE])


@rule("Const", "Placeholder", "NoOp", "EmptyTensorMap")
def constant(op: Operation) -> Decision | None:
    """Have the same value everywhere."""
    return Decision([AS_IS] * len(op.inputs), [REPLICATE] * len(op.outputs))


@rule("Assert")
def check(op: Operation) -> Decision | None:
    """Check a condition on each replica's rows."""
    if not isinstance(op.placements[0], Replicate):
        return None
    return Decision([REPLICATE] * len(op.inputs), [], gathers=True)


@rule("Rank")
def rank(op: Operation) -> Decision | None:
    """Give the number of axes."""
    return Decision([AS_IS], [REPLICATE]) if op.rank(0) is not None else None
