"""Variables and other state that every replica has."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import handle_data_util

from ..operation import LOCAL, BroadcastRows, Decision, Form, Operation, rule
from ..placements import REPLICATE, Partial, Replicate
from ..replica_reductions import ALL


@rule("VariableShape", "VarIsInitializedOp", "LookupTableSizeV2")
def describe(op: Operation) -> Decision | None:
    """Describe the replica's copy, or the only copy; for a divided variable, the whole shape."""
    if op.type == "VariableShape" and op.any_shard:
        (data,) = handle_data_util.get_resource_handle_data(op.inputs[0]).shape_and_type
        shape = tf.TensorShape(data.shape).as_list()
        return Decision(
            [LOCAL],
            [REPLICATE],
            lambda stage, op, inputs: [tf.constant(shape, op.outputs[0].dtype)],
        )
    return Decision([LOCAL], [REPLICATE])


@rule("ReadVariableOp")
def read(op: Operation) -> Decision | None:
    """Read the replica's copy or part; read an only copy once, on its device.

    XLA does not read variables of a different device.
    """
    facts = op.facts
    if op.any_shard:
        return Decision([LOCAL], [op.placements[0]])
    once = not op.in_body and facts.is_shared(op.inputs[0])
    return Decision([LOCAL], [REPLICATE], on_one_replica=once)


@rule("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def assign(op: Operation) -> Decision | None:
    """Change a replica's own part of a divided variable, or its copy by a whole value.

    If the rule returns `None`, the value is wanted whole. A gradient is a partial sum by the rules
    of products and reductions. So the gradient is added up over the replicas at this assignment, or
    at an earlier operation of the optimizer that takes the whole gradient.
    """
    handle, value = op.shard(0), op.shard(1)
    if handle is not None:
        return Decision([LOCAL, BroadcastRows(handle)], [])
    if value is None or value.rows.is_batch or op.facts.effects_of(op.op)[0]:
        return None
    return Decision([LOCAL, REPLICATE], [], needs_all_rows=True)


@rule("LookupTableFindV2")
def look_up_keys(op: Operation) -> Decision | None:
    """Look up each row's keys."""
    shard, rank = op.shard(1), op.outputs[0].shape.rank
    if shard is None or shard.axis or rank is None or rank < (op.rank(1) or rank + 1):
        return None
    return Decision([LOCAL, LOCAL, REPLICATE], [shard.as_plain()])


@rule("Const", "Placeholder", "NoOp", "EmptyTensorMap")
def constant(op: Operation) -> Decision | None:
    """Make the same value on every replica."""
    return Decision([LOCAL] * len(op.inputs), [REPLICATE] * len(op.outputs))


@rule("Assert")
def assert_rows(op: Operation) -> Decision | None:
    """Check a condition; each replica checks `all` of its own rows."""
    if not isinstance(op.placements[0], Replicate) and not op.is_partial(0, ALL):
        return None
    forms: list[Form] = [REPLICATE if isinstance(p, Partial) else LOCAL for p in op.placements]
    return Decision([LOCAL, *forms[1:]], [])


@rule("Rank")
def rank(op: Operation) -> Decision | None:
    """Return the number of axes."""
    return Decision([LOCAL], [REPLICATE]) if op.rank(0) is not None else None
