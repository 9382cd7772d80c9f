"""Gathers, scatters and segments, and rows that a step selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..placements import (
    AS_IS,
    PARTIAL,
    REPLICATE,
    ListOf,
    Partial,
    Replicate,
    Rows,
    Shard,
    local,
)
from ..plan import Decision, Operation
from ..sizes import Space
from . import rule
from .reductions import PARTS


@rule("GatherV2", "ResourceGather")
def gather(op: Operation) -> Decision | None:
    """Look up rows of a table: indices are divided, or the rows of the table along another axis."""
    resource = op.type == "ResourceGather"
    axis = 0 if resource else op.constant(2)
    batch = op.attr("batch_dims")
    rank, index_rank = op.rank(0), op.rank(1)
    table, index = op.placements[0], op.placements[1]
    rest: list[Any] = [REPLICATE] * (len(op.inputs) - 2)
    if axis is None or index_rank is None or (rank is None and not resource):
        return None
    axis = 0 if resource else int(axis) % rank  # type: ignore[operator]
    if batch:
        main = table if isinstance(table, Shard) else index
        if not isinstance(main, Shard) or main.axis >= batch:
            return None
        want = main.plain()
        wants = [p if op.align(p, want) else want for p in (table, index)]
        return Decision([*wants, *rest], [want])
    if isinstance(table, Shard) and isinstance(index, Shard):
        local = _within(op, table, index, axis, rest)
        if local is not None:
            return local
    if isinstance(table, Shard) and table.axis != axis and isinstance(index, Replicate):
        out = table.axis if table.axis < axis else table.axis + index_rank - 1
        return Decision([AS_IS, REPLICATE, *rest], [table.at(out).plain()])
    if isinstance(index, Shard):
        return Decision([REPLICATE, AS_IS, *rest], [index.plain().at(axis + index.axis)])
    return None


def _within(
    op: Operation, table: Shard, index: Shard, axis: int, rest: list[Any]
) -> Decision | None:
    """Look up rows of which each is on the same replica as its index."""
    if index.within is None or index.within != table.rows or table.axis != axis or axis:
        return None

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        rows, indices, *others = inputs
        ((_, first),) = stage.blocks(table.rows, indices.dtype)
        return stage.copy(op, [rows, indices - first, *others])  # type: ignore[no-any-return]

    if len(table.rows.segments) != 1:
        return None
    return Decision([AS_IS, AS_IS, *rest], [index.plain()], emit, needs=[table.rows])


@rule("GatherNd", "ResourceGatherNd")
def gather_nd(op: Operation) -> Decision | None:
    """Look up elements or slices by a vector of indices each."""
    index, rank = op.shard(1), op.rank(1)
    if index is None or rank is None or index.axis == rank - 1:
        return None
    table = op.shard(0)
    named = op.planner.places.get(id(op.inputs[1]))
    if table is None or table.axis or named != table.rows:
        return Decision([REPLICATE, AS_IS], [index.plain()])

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        table, places = inputs
        return stage.copy(op, [table, move_places(stage, named, places, -1)])  # type: ignore[no-any-return]

    return Decision([AS_IS, AS_IS], [index.plain()], emit, needs=[named])


@rule("Where")
def where(op: Operation) -> Decision | None:
    """Find the places of true values: those of a replica's rows are on the same replica."""
    shard, rank = op.shard(0), op.rank(0)
    if shard is None or rank is None or shard.axis or len(shard.rows.segments) != 1:
        return None
    if op.planner.parent is not None:
        return None
    output = op.outputs[0]
    rows = Rows(((Space(f"the rows of {output.name}", source=(output, 0)), 1),))

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        (places,) = stage.copy(op, inputs)
        return [move_places(stage, shard.rows, places)]

    op.planner.places[id(output)] = shard.rows
    within = shard.rows if rank == 1 else None
    return Decision([AS_IS], [Shard(0, rows, within=within)], emit, needs=[shard.rows])


def move_places(stage: Any, rows: Rows, places: Any, sign: int = 1) -> Any:
    """Return places of a replica's values as they are in the whole batch; for -1, back again."""
    ((_, first),) = stage.blocks(rows, places.dtype)
    zero, width = tf.zeros_like(first), places.shape[1]
    return places + tf.one_hot(0, width, sign * first, zero, dtype=places.dtype)


@rule("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def segments(op: Operation) -> Decision | None:
    """Reduce the rows of each segment."""
    main = op.shard(0) or op.shard(1)
    rank = op.rank(1)
    if main is None or rank is None:
        return None
    dims, count = op.dims(0), op.sizes(2)
    if dims is not None and count is not None:
        op.planner.set_dims(op.outputs[0], [count.item(), *dims[rank:]])
    if main.axis >= rank:  # every column on its own
        return Decision([AS_IS, REPLICATE, REPLICATE], [main.plain().at(main.axis - rank + 1)])
    want = main.plain()
    wants: list[Any] = [p if op.align(p, want) else want for p in op.placements[:2]]
    named = _named_rows(op, count)
    if named is not None:
        return _segments_of_rows([*wants, REPLICATE], named)
    kind = op.type.removeprefix("UnsortedSegment")
    return Decision([*wants, REPLICATE], [Partial(PARTS[kind])])


def _named_rows(op: Operation, count: Any) -> Rows | None:
    """Return the rows that are the segments, if the values of each are on its replica."""
    ids = op.shard(1)
    rows = None if ids is None or op.rank(1) != 1 else ids.within
    if rows is None or count is None or len(rows.segments) != 1:
        return None
    return rows if rows.is_total(count.item()) else None


def _segments_of_rows(wants: list[Any], rows: Rows) -> Decision:
    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        values, ids, _ = inputs
        ((count, first),) = stage.blocks(rows, ids.dtype)
        return stage.copy(op, [values, ids - first, tf.cast(count, op.inputs[2].dtype)])  # type: ignore[no-any-return]

    return Decision(wants, [Shard(0, rows)], emit, needs=[rows])


@rule("DenseBincount")
def bincount(op: Operation) -> Decision | None:
    """Count values, those of each sample on their own if there are samples."""
    shard, rank = op.shard(0), op.rank(0)
    weights, count = op.placements[2], op.inputs[2].shape.num_elements()
    if shard is None or shard.axis or rank is None:
        return None
    if count == 0 and isinstance(weights, Replicate):
        wants: list[Any] = [AS_IS, REPLICATE, REPLICATE]
    elif isinstance(weights, Shard) and op.rank(2) == rank and op.align(weights, shard):
        wants = [AS_IS, REPLICATE, AS_IS]
    else:
        return None
    if rank == 2:
        return Decision(wants, [shard.plain()])
    return None if op.attr("binary_output") else Decision(wants, [PARTIAL])


@rule("ScatterNd")
def scatter_nd(op: Operation) -> Decision | None:
    """Add updates to zeros, at the places that indices name."""
    main = op.shard(0) or op.shard(1)
    if main is None or main.axis >= (op.rank(0) or 0) - 1:
        return None
    dtype = op.inputs[1].dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex):
        return None
    want = main.plain()
    wants: list[Any] = [p if op.align(p, want) else want for p in op.placements[:2]]
    rows, shape = op.planner.places.get(id(op.inputs[0])), op.sizes(2)
    if rows is None or shape is None or not rows.is_total(shape[0]):
        return Decision([*wants, REPLICATE], [PARTIAL])

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        places, updates, shape = inputs
        return stage.copy(op, [move_places(stage, rows, places, -1), updates, shape])  # type: ignore[no-any-return]

    return Decision([*wants, local(0, rows)], [Shard(0, rows)], emit, needs=[rows])


@rule(
    "ResourceScatterAdd",
    "ResourceScatterSub",
    "ResourceScatterUpdate",
    "ResourceScatterNdAdd",
    "ResourceScatterNdSub",
    "ResourceScatterNdUpdate",
    "ResourceScatterMul",
    "ResourceScatterDiv",
    "ResourceScatterMin",
    "ResourceScatterMax",
)
def scatter_into_variable(op: Operation) -> Decision | None:
    """Update rows of a variable: every replica's copy gets those of all replicas."""
    if id(op.inputs[0]) in op.planner.shared or any(isinstance(p, ListOf) for p in op.placements):
        return None
    return Decision([REPLICATE] * len(op.inputs), [], gathers=True)


@rule("TensorScatterAdd", "TensorScatterMax", "TensorScatterMin", "TensorScatterSub")
def scatter_into_tensor(op: Operation) -> Decision | None:
    """Change rows of a divided variable's value: each replica gets all updates, and makes its own.

    Of a batch a replica may have no rows, into which TensorFlow refuses to scatter.
    """
    shard, rank, depth = op.shard(0), op.rank(1), op.inputs[1].shape[-1]
    if shard is None or shard.rows.is_batch or rank is None or depth is None:
        return None
    if shard.axis >= depth:
        updates = shard.plain().at(rank - 1 + shard.axis - depth)
        return Decision([AS_IS, REPLICATE, updates], [shard.plain()], gathers=True)
    if len(shard.rows.segments) > 1 or op.type not in ("TensorScatterAdd", "TensorScatterSub"):
        return None

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        tensor, indices, updates = inputs
        ((count, first),) = stage.blocks(shard.rows, indices.dtype)
        own = indices[..., shard.axis] - first
        is_own = tf.logical_and(own >= 0, own < count)
        # The updates of others' rows become zeros for the first one.
        parts = tf.unstack(indices, axis=-1)
        parts[shard.axis] = tf.where(is_own, own, 0)
        shape = tf.concat([tf.shape(is_own), tf.ones_like(tf.shape(updates)[rank - 1 :])], 0)
        kept = tf.where(tf.reshape(is_own, shape), updates, tf.zeros_like(updates))
        return stage.copy(op, [tensor, tf.stack(parts, -1), kept])  # type: ignore[no-any-return]

    return Decision(
        [AS_IS, REPLICATE, REPLICATE], [shard.plain()], emit, needs=[shard.rows], gathers=True
    )
