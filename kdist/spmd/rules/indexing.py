"""Gathers, scatters and segments, and rows that a step selects."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..operation import (
    LOCAL,
    NOT_READ,
    Decision,
    Form,
    Operation,
    Rewrite,
    Tensors,
    local_size,
    rule,
)
from ..placements import PARTIAL, REPLICATE, ListOf, Partial, Replicate, Shard
from ..replica_reductions import ONE_TERM
from ..rows import Rows
from ..sizes import BatchAxis
from ..stage import Stage
from .reductions import REDUCTION_OF_TYPE


@rule("GatherV2", "ResourceGather")
def gather(op: Operation) -> Decision | Rewrite | None:
    """Look up rows of a table, with divided indices, or a table divided along a different axis."""
    resource = op.type == "ResourceGather"
    axis = 0 if resource else op.constant(2)
    batch = op.attr("batch_dims")
    rank, index_rank = op.rank(0), op.rank(1)
    table, index = op.placements[0], op.placements[1]
    rest: list[Form] = [REPLICATE] * (len(op.inputs) - 2)
    if axis is None or index_rank is None or (rank is None and not resource):
        return None
    axis = 0 if resource else int(axis) % rank  # type: ignore[operator]
    if batch:
        main = table if isinstance(table, Shard) else index
        if not isinstance(main, Shard) or main.axis >= batch:
            return None
        forms = [op.rows_form(index, main) for index in range(2)]
        return Decision([*forms, *rest], [main.as_plain()])
    if isinstance(table, Shard) and isinstance(index, Shard):
        local = _look_up_within(op, table, index, axis, rest)
        if local is not None:
            return local
    if isinstance(table, Shard) and table.axis != axis and isinstance(index, Replicate):
        out = table.axis if table.axis < axis else table.axis + index_rank - 1
        return Decision([LOCAL, REPLICATE, *rest], [table.on_axis(out).as_plain()])
    if isinstance(index, Shard):
        if axis == 0 and _is_looked_up_in_parts(op, index):
            values, indices = op.op.inputs[:2]
            return Rewrite(lambda: [take_rows(look_up(values, indices), indices)])
        return Decision([REPLICATE, LOCAL, *rest], [index.as_plain().on_axis(axis + index.axis)])
    return None


def _is_looked_up_in_parts(op: Operation, index: Shard) -> bool:
    """Whether each replica looks up the indices of all replicas in its rows of a divided table.

    Otherwise the whole table is gathered: if it has fewer rows than there are indices, if their
    number is unknown, and in bodies, which have no exchanges.
    """
    table = op.weights.get(0)
    if table is None or table.axis or table.rows.known_parts is None or op.in_body:
        return False
    ((batch_axis, unit), *others) = index.rows.segments
    is_batch = batch_axis.root().source is None and isinstance(unit, int) and not others
    return is_batch and op.inputs[0].dtype.is_floating and _has_fewer_elements(op, 1, op.inputs[0])


def _has_fewer_elements(op: Operation, index: int, table: tf.Tensor) -> bool:
    """Whether an input is expected to have fewer elements than a table has rows."""
    elements = op.facts.expected_elements(op.inputs[index])
    return elements is not None and elements < op.facts.shape_of(table)[0]


@tf.function(autograph=False, experimental_implements="look_up")
def look_up(table: Any, indices: Any) -> Any:
    """Return rows of a table, by their indices."""
    return tf.gather(table, indices)


@tf.function(autograph=False, experimental_implements="take_rows")
def take_rows(rows: Any, indices: Any) -> Any:
    """Return the rows of all indices; a replica gets the rows of its own indices."""
    del indices
    return tf.identity(rows)


@rule("kernel:look_up")
def look_up_own_rows(op: Operation) -> Decision | None:
    """Look up the indices of all replicas in a replica's rows of a table."""
    table, dims = op.weights.get(0), op.dims(1)
    if table is None or dims is None:
        return None
    op.set_dims(op.outputs[0], [*dims, *op.inputs[0].shape.as_list()[1:]])

    def look_up_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        rows, indices = inputs
        if indices.dtype.size < 4:  # The number of rows may exceed the type.
            indices = tf.cast(indices, tf.int32)
        own, is_own, _ = own_places(stage, table.rows, indices, least=0)
        found = tf.gather(rows, tf.where(is_own, own, 0))
        no_row = tf.constant(-0.0, found.dtype)
        return [tf.where(_expand_condition(is_own, found), found, no_row)]

    return Decision(
        [table, REPLICATE],
        [Partial(ONE_TERM)],
        look_up_local_rows,
        needs=[table.rows],
        needs_all_rows=True,
    )


@rule("kernel:take_rows")
def take_own_rows(op: Operation) -> Decision | None:
    """Take the rows of a replica's own indices, looked up by other replicas."""
    index, dims = op.shard(1), op.dims(0)
    if index is None or dims is None or not op.is_partial(0, ONE_TERM):
        return None
    op.set_dims(op.outputs[0], dims)
    wanted = index.as_plain()
    return Decision([wanted, NOT_READ], [wanted], lambda stage, op, inputs: inputs[:1])


def own_places(
    stage: Stage, rows: Rows, places: Any, least: int | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return indices into a replica's rows, whether it has each index, and its number of rows.

    `places` are indices into the rows of all replicas. On CPUs, indices below `least`, and indices
    that no replica has, are an error, as for TensorFlow's kernels.
    """
    ((count, first),) = stage.row_blocks(rows, places.dtype)
    checks = []
    if stage.on_cpus and rows.known_parts is not None:
        total = sum(rows.known_parts)
        is_right = places < total
        if least is not None:
            is_right = tf.logical_and(is_right, places >= least)
        message = f"an index is not in [0, {total}); the smallest and the largest index:"
        data = [message, tf.reduce_min(places), tf.reduce_max(places)]
        checks = [tf.debugging.Assert(tf.reduce_all(is_right), data)]
    with tf.control_dependencies(checks):
        own = places - first
    return own, tf.logical_and(own >= 0, own < count), count


def _expand_condition(condition: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return a condition of the values' rows with an axis of size 1 for each axis of a row."""
    ones = tf.ones_like(tf.shape(values)[condition.shape.rank :])
    return tf.reshape(condition, tf.concat([tf.shape(condition), ones], 0))


def _look_up_within(
    op: Operation, table: Shard, index: Shard, axis: int, rest: list[Form]
) -> Decision | None:
    """Look up rows, each on the same replica as its index."""
    if index.within != table.rows or table.axis or axis or len(table.rows.segments) != 1:
        return None

    def look_up_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        rows, indices, *others = inputs
        ((_, first),) = stage.row_blocks(table.rows, indices.dtype)
        return stage.copy_operation(op, [rows, indices - first, *others])

    return Decision(
        [LOCAL, LOCAL, *rest], [index.as_plain()], look_up_local_rows, needs=[table.rows]
    )


@rule("GatherNd", "ResourceGatherNd")
def gather_nd(op: Operation) -> Decision | None:
    """Look up elements or slices, each by a vector of indices."""
    index, rank = op.shard(1), op.rank(1)
    if index is None or rank is None or index.axis == rank - 1:
        return None
    table = op.shard(0)
    named = op.named_rows(1)
    if table is None or table.axis or named != table.rows:
        return Decision([REPLICATE, LOCAL], [index.as_plain()])

    def look_up_named_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        table, places = inputs
        return stage.copy_operation(op, [table, move_places(stage, named, places, -1)])

    return Decision([LOCAL, LOCAL], [index.as_plain()], look_up_named_rows, needs=[named])


@rule("Where")
def where(op: Operation) -> Decision | None:
    """Find the indices of true values; the replica of a row has its indices."""
    shard, rank = op.shard(0), op.rank(0)
    if shard is None or rank is None or shard.axis or len(shard.rows.segments) != 1:
        return None
    if op.in_body:
        return None
    output = op.outputs[0]
    rows = Rows(((BatchAxis(f"the rows of {output.name}", source=(output, 0)), 1),))

    def find_places(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        (places,) = stage.copy_operation(op, inputs)
        return [move_places(stage, shard.rows, places)]

    op.name_rows(output, shard.rows)
    within = shard.rows if rank == 1 else None
    return Decision([LOCAL], [Shard(0, rows, within=within)], find_places, needs=[shard.rows])


def move_places(stage: Stage, rows: Rows, places: Any, sign: int = 1) -> Any:
    """Convert indices into a replica's rows to indices into the batch; for `sign=-1`, back."""
    ((_, first),) = stage.row_blocks(rows, places.dtype)
    zero, width = tf.zeros_like(first), places.shape[1]
    return places + tf.one_hot(0, width, sign * first, zero, dtype=places.dtype)


@rule("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def reduce_segments(op: Operation) -> Decision | None:
    """Reduce the rows of each segment."""
    main = op.shard(0) or op.shard(1)
    rank = op.rank(1)
    if main is None or rank is None:
        return None
    dims, count = op.dims(0), op.sizes_in(2)
    if dims is not None and count is not None:
        op.set_dims(op.outputs[0], [count.item(), *dims[rank:]])
    if main.axis >= rank:  # Each column is reduced on its own.
        return Decision(
            [LOCAL, REPLICATE, REPLICATE], [main.as_plain().on_axis(main.axis - rank + 1)]
        )
    forms = [op.rows_form(index, main) for index in range(2)]
    named = _named_rows(op, count)
    if named is not None:
        return _reduce_within([*forms, REPLICATE], named)
    reduction = REDUCTION_OF_TYPE[op.type.removeprefix("UnsortedSegment")]
    return _add_up_in_variable(op) or Decision([*forms, REPLICATE], [Partial(reduction)])


def _named_rows(op: Operation, count: Any) -> Rows | None:
    """Return the rows that the segments are, if a row's replica has all values of its segment."""
    ids = op.shard(1)
    rows = None if ids is None or op.rank(1) != 1 else ids.within
    if rows is None or count is None or len(rows.segments) != 1:
        return None
    return rows if rows.is_total(count.item()) else None


def _add_up_in_variable(op: Operation) -> Decision | None:
    """Add up the segments that are a replica's rows of a divided variable, such as a table.

    The values of all replicas are gathered, in the order of the batch, if they are fewer rows than
    the variable has: so no replica has the whole gradient of the table.
    """
    table = op.facts.variable_shard(op.outputs[0])
    if op.type != "UnsortedSegmentSum" or table is None or table.axis or op.in_body:
        return None
    if not _has_fewer_elements(op, 1, op.outputs[0]):
        return None

    def add_up_own_segments(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        values, ids, _ = inputs
        own, is_own, count = own_places(stage, table.rows, ids, least=None)
        own = tf.where(is_own, own, -1)  # Values with a negative id are left out.
        return stage.copy_operation(op, [values, own, tf.cast(count, op.inputs[2].dtype)])

    return Decision(
        [REPLICATE] * 3, [table], add_up_own_segments, needs=[table.rows], needs_all_rows=True
    )


def _reduce_within(forms: list[Any], rows: Rows) -> Decision:
    def reduce_local_segments(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        values, ids, _ = inputs
        ((count, first),) = stage.row_blocks(rows, ids.dtype)
        return stage.copy_operation(op, [values, ids - first, tf.cast(count, op.inputs[2].dtype)])

    return Decision(forms, [Shard(0, rows)], reduce_local_segments, needs=[rows])


@rule("DenseBincount")
def count_values(op: Operation) -> Decision | None:
    """Count values; for a matrix, count each sample's values on their own."""
    shard, rank = op.shard(0), op.rank(0)
    weights, count = op.placements[2], op.inputs[2].shape.num_elements()
    if shard is None or shard.axis or rank is None:
        return None
    if count == 0 and isinstance(weights, Replicate):
        forms: list[Form] = [LOCAL, REPLICATE, REPLICATE]
    elif isinstance(weights, Shard) and op.rank(2) == rank and op.try_align(weights, shard):
        forms = [LOCAL, REPLICATE, LOCAL]
    else:
        return None
    if rank == 2:
        return Decision(forms, [shard.as_plain()])
    return None if op.attr("binary_output") else Decision(forms, [PARTIAL])


@rule("ScatterNd")
def scatter_nd(op: Operation) -> Decision | None:
    """Add updates to zeros, at the places that indices name."""
    main = op.shard(0) or op.shard(1)
    if main is None or main.axis >= (op.rank(0) or 0) - 1:
        return None
    dtype = op.inputs[1].dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex):
        return None
    forms = [op.rows_form(index, main) for index in range(2)]
    rows, shape = op.named_rows(0), op.sizes_in(2)
    if rows is None or shape is None or not rows.is_total(shape[0]):
        return Decision([*forms, REPLICATE], [PARTIAL])

    def scatter_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        places, updates, shape = inputs
        return stage.copy_operation(op, [move_places(stage, rows, places, -1), updates, shape])

    return Decision(
        [*forms, local_size(0, rows)], [Shard(0, rows)], scatter_local_rows, needs=[rows]
    )


_KINDS = ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max", "NdAdd", "NdSub", "NdUpdate")


@rule(*(f"ResourceScatter{kind}" for kind in _KINDS))
def scatter_into_variable(op: Operation) -> Decision | None:
    """Update rows of a variable: every replica's copy gets the updates of all replicas."""
    has_lists = any(isinstance(placement, ListOf) for placement in op.placements)
    if has_lists or op.facts.is_shared(op.inputs[0]):
        return None
    return Decision([REPLICATE] * len(op.inputs), [], needs_all_rows=True)


@rule("TensorScatterAdd", "TensorScatterMax", "TensorScatterMin", "TensorScatterSub")
def scatter_into_tensor(op: Operation) -> Decision | None:
    """Change rows of a divided variable's value; each replica gets all updates, and keeps its own.

    Tensors with rows of a batch are computed whole: a replica may have no rows of a batch, and
    TensorFlow refuses to scatter into a tensor without rows.
    """
    shard, rank, depth = op.weights.get(0) or op.shard(0), op.rank(1), op.inputs[1].shape[-1]
    if shard is None or shard.rows.is_batch or rank is None or depth is None:
        return None
    if shard.axis >= depth:
        updates = shard.as_plain().on_axis(rank - 1 + shard.axis - depth)
        return Decision([shard, REPLICATE, updates], [shard.as_plain()], needs_all_rows=True)
    if len(shard.rows.segments) > 1 or op.type not in ("TensorScatterAdd", "TensorScatterSub"):
        return None

    def scatter_own_updates(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        tensor, indices, updates = inputs
        own, is_own, _ = own_places(stage, shard.rows, indices[..., shard.axis], least=0)
        # Updates of rows on all other replicas become zeros for the first row, which -0.0 and a
        # subtracted 0.0 do not change.
        parts = tf.unstack(indices, axis=-1)
        parts[shard.axis] = tf.where(is_own, own, 0)
        is_signed = op.type == "TensorScatterAdd" and updates.dtype.is_floating
        no_update = tf.constant(-0.0 if is_signed else 0, updates.dtype)
        kept = tf.where(_expand_condition(is_own, updates), updates, no_update)
        return stage.copy_operation(op, [tensor, tf.stack(parts, -1), kept])

    return Decision(
        [shard, REPLICATE, REPLICATE],
        [shard.as_plain()],
        scatter_own_updates,
        needs=[shard.rows],
        needs_all_rows=True,
    )
