"""Variables and other state that every replica has."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import handle_data_util

from ..placements import AS_IS, REPLICATE, OwnRows, Partial, Replicate
from ..plan import Decision, Operation
from . import rule


@rule("VariableShape", "VarIsInitializedOp", "LookupTableSizeV2")
def describe(op: Operation) -> Decision | None:
    """Describe a replica's own copy, or the only one; a divided variable has its whole shape."""
    if op.type == "VariableShape" and op.any_shard:
        (data,) = handle_data_util.get_resource_handle_data(op.inputs[0]).shape_and_type
        shape = tf.TensorShape(data.shape).as_list()
        return Decision(
            [AS_IS],
            [REPLICATE],
            lambda stage, op, inputs: [tf.constant(shape, op.outputs[0].dtype)],
        )
    return Decision([AS_IS], [REPLICATE])


@rule("ReadVariableOp")
def read(op: Operation) -> Decision | None:
    """Read a replica's own copy or part; the only one once: XLA reads none of another device."""
    planner = op.planner
    if op.any_shard:
        return Decision([AS_IS], [op.placements[0]])
    once = planner.parent is None and id(op.inputs[0]) in planner.shared
    return Decision([AS_IS], [REPLICATE], once=once)


@rule("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def assign(op: Operation) -> Decision | None:
    """Change a replica's own part of a divided variable, or its copy by what all replicas have.

    Where this returns `None`, the value is wanted whole. So a gradient, which is a partial sum by
    the rules of products and reductions, is added up over the replicas here, or at the first
    operation of the optimizer that is not linear.
    """
    handle, value = op.shard(0), op.shard(1)
    if handle is not None:
        return Decision([AS_IS, OwnRows(handle)], [])
    if value is None or value.rows.is_batch:
        return None
    return None if op.planner.effects(op.op)[0] else Decision([AS_IS, REPLICATE], [], gathers=True)


@rule("LookupTableFindV2")
def find(op: Operation) -> Decision | None:
    """Look up each row's keys."""
    shard, rank = op.shard(1), op.outputs[0].shape.rank
    if shard is None or shard.axis or rank is None or rank < (op.rank(1) or rank + 1):
        return None
    return Decision([AS_IS, AS_IS, REPLICATE], [shard.plain()])


@rule("Const", "Placeholder", "NoOp", "EmptyTensorMap")
def constant(op: Operation) -> Decision | None:
    """Have the same value everywhere."""
    return Decision([AS_IS] * len(op.inputs), [REPLICATE] * len(op.outputs))


@rule("Assert")
def check(op: Operation) -> Decision | None:
    """Check a condition; one on all rows is checked on each replica's, which the message shows."""
    if not isinstance(op.placements[0], Replicate) and not op.is_partial(0, "all"):
        return None
    wants: list[Any] = [REPLICATE if isinstance(p, Partial) else AS_IS for p in op.placements]
    return Decision([AS_IS, *wants[1:]], [])


@rule("Rank")
def rank(op: Operation) -> Decision | None:
    """Give the number of axes."""
    return Decision([AS_IS], [REPLICATE]) if op.rank(0) is not None else None
