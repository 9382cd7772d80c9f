"""Operations that change shapes, or make tensors of a given shape."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..empty_inputs import pad_to_one_row
from ..operation import (
    LOCAL,
    NOT_READ,
    BroadcastRows,
    Decision,
    Form,
    Operation,
    Tensors,
    local_size,
    rule,
)
from ..placements import PARTIAL, REPLICATE, ListOf, Replicate, Shard
from ..replica_reductions import SUM
from ..rows import Rows
from ..sizes import AnySize, Element, Size, batch_axes_in, divide_exactly, symbols_in
from ..stage import Stage, rows_from


@rule("Shape", "ShapeN", "Size")
def shape(op: Operation) -> Decision | None:
    """Give the shape of the whole batch's tensor."""
    if not op.any_shard:
        if any(isinstance(p, ListOf) for p in op.placements):
            return None  # On a replica, the shapes of a list's elements differ.
        return Decision([LOCAL] * len(op.inputs), [REPLICATE] * len(op.outputs))
    dims = [sizes for index in range(len(op.inputs)) if (sizes := op.dims(index)) is not None]
    if len(dims) < len(op.inputs):
        return None

    def write_global_shape(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        dtype = op.outputs[0].dtype
        if op.type == "Size":
            return [stage.write_size(math.prod(dims[0]), dtype)]
        return [stage.size_vector(sizes, dtype) for sizes in dims]

    needs = [size for sizes in dims for size in sizes]
    return Decision(
        [LOCAL] * len(op.inputs),
        [REPLICATE] * len(op.outputs),
        write_global_shape,
        needs=needs,
    )


@rule("Reshape")
def reshape(op: Operation) -> Decision | None:
    """Reshape, keeping rows together: a replica's rows are contiguous in row-major order."""
    if op.is_partial(0):
        return Decision([LOCAL, REPLICATE], [op.placements[0]], reduces_input=True)
    shard, dims, target = op.shard(0), op.dims(0), op.sizes_in(1)
    if dims is None or target is None:
        return None
    target = target.tolist()
    if any(map(may_be_minus_one, target)):
        return None
    inferred = target.index(-1) if -1 in target else None
    if inferred is not None:
        rest = math.prod(size for size in target if size != -1)
        missing = divide_exactly(math.prod(dims), rest)
        if missing is None and op.outputs[0].shape.rank is not None:
            missing = op.outputs[0].shape[inferred]
        if missing is None:
            return None
        target[inferred] = missing
    if shard is None:
        if op.outputs[0].shape.rank == len(target):
            op.set_dims(op.outputs[0], target)
        return None
    before = math.prod(dims[: shard.axis])
    after = math.prod(dims[shard.axis + 1 :])
    passed: AnySize = 1
    for axis, size in enumerate(target):
        kept = _rows_of_new_axis(shard.rows, before, passed)
        if kept is not None and size != 1:
            behind = math.prod(target[axis + 1 :])
            if 0 in (after, behind):
                return None
            rows = kept.divide(after, behind)
            if rows is None and kept is shard.rows and kept.is_total(size):
                rows = kept  # The axes behind the rows keep their number of elements.
            if rows is not None:
                within = shard.within if kept is shard.rows and after == behind else None
                # Merged or split rows may differ, although the rows are equal.
                uniform = shard.uniform and kept is shard.rows and rows == kept
                out = Shard(axis, rows, uniform, within)
                if len(rows.segments) > 1:
                    op.add_layout(rows)
                if op.outputs[0].shape.rank is not None:
                    target[axis] = rows.total
                    op.set_dims(op.outputs[0], target)
                if inferred in (None, axis):
                    return Decision([LOCAL, local_size(axis, rows)], [out])
                # A replica without rows cannot infer the size of an axis that is not the rows'.
                write = functools.partial(_write_reshape_to, target, {axis: rows})
                needs = [*target, rows]
                return Decision([LOCAL, NOT_READ], [out], write, needs=needs)
        passed = passed * size
    return None


def may_be_minus_one(size: AnySize) -> bool:
    """Whether a symbol in a size may be -1 when the step runs, as it may be any integer."""
    return any(
        isinstance(symbol, Element)
        and not symbol.is_size
        and symbol.tensor.op.type not in ("Maximum", "BroadcastArgs")
        for symbol in symbols_in(size)
    )


def _rows_of_new_axis(rows: Rows, before: AnySize, passed: AnySize) -> Rows | None:
    """Return the rows of an axis of the new shape; `None` if the rows do not stay together.

    `before` is the number of elements of all axes before the rows, `passed` of all axes before the
    new axis.

    If axes before the rows are merged with the rows, each element of these axes has a segment: the
    rows of `(2, batch)` become `batch + batch` in `(2 * batch,)`. The other way round, equal
    segments become an axis.
    """
    if passed == before:
        return rows
    times = divide_exactly(before, passed)
    if isinstance(times, int) and times > 1:
        return Rows(rows.segments * times)
    times = divide_exactly(passed, before)
    if isinstance(times, int) and times > 1 and len(rows.segments) % times == 0:
        first = Rows(rows.segments[: len(rows.segments) // times])
        return first if Rows(first.segments * times) == rows else None
    return None


def _write_reshape_to(
    target: list[AnySize], rows: dict[int, Rows], stage: Stage, op: tf.Operation, inputs: Tensors
) -> Tensors:
    return [tf.reshape(inputs[0], stage.size_vector(target, "int32", rows))]


@rule("ExpandDims")
def expand_dims(op: Operation) -> Decision | None:
    """Insert an axis."""
    axis, rank = op.constant(1), op.rank(0)
    if axis is None or rank is None:
        return None
    axis = int(np.ravel(axis)[0]) % (rank + 1)
    return _move_axes(op, [*range(axis), None, *range(axis, rank)])


@rule("Squeeze")
def squeeze(op: Operation) -> Decision | None:
    """Remove axes; without given axes, any axis may be removed."""
    rank = op.rank(0) or 0
    removed = {axis % rank for axis in op.attr("squeeze_dims") if rank} or set(range(rank))
    return _move_axes(op, [axis for axis in range(rank) if axis not in removed])


@rule("Transpose")
def transpose(op: Operation) -> Decision | None:
    """Permute axes."""
    order = op.constant(1)
    return None if order is None else _move_axes(op, [int(axis) for axis in order])


def _move_axes(op: Operation, axes: Sequence[int | None]) -> Decision | None:
    """Divide an operation whose result has `axes` of the input; `None` is a new axis."""
    rest = [REPLICATE] * (len(op.inputs) - 1)
    if op.is_partial(0):
        return Decision([LOCAL, *rest], [op.placements[0]], reduces_input=True)
    shard, dims = op.shard(0), op.dims(0)
    if shard is None or shard.axis not in axes:
        return None
    if dims is not None:
        op.complete_dims(op.outputs[0], [1 if axis is None else dims[axis] for axis in axes])
    return Decision([LOCAL, *rest], [shard.on_axis(axes.index(shard.axis))])


@rule("Fill")
def fill(op: Operation) -> Decision | None:
    """Make a replica's rows of a tensor filled with a single value."""
    _set_result_dims(op, 0)
    found = counted_axis(op, 0, first=True)
    if found is None or not isinstance(op.placements[1], Replicate):
        return None
    axis, rows = found
    return Decision([local_size(axis, rows), REPLICATE], [Shard(axis, rows, uniform=True)])


def _set_result_dims(op: Operation, index: int) -> None:
    sizes = op.sizes_in(index)
    if sizes is not None and op.outputs[0].shape.rank == len(sizes):
        op.set_dims(op.outputs[0], sizes.tolist())


def counted_axis(op: Operation, index: int, *, first: bool = False) -> tuple[int, Rows] | None:
    """Return the index of the element of a shape that counts the rows of a batch, and its rows.

    If several elements count rows, `None` is returned, or the first element if `first`.
    """
    sizes = op.sizes_in(index)
    if sizes is None or sizes.ndim != 1:
        return None
    counting = [index for index, size in enumerate(sizes) if batch_axes_in(size)]
    if not counting or (len(counting) > 1 and not first):
        return None
    rows = op.facts.rows_of(sizes[counting[0]])
    return None if rows is None else (counting[0], rows)


@rule("BroadcastTo")
def broadcast_to(op: Operation) -> Decision | None:
    """Broadcast to a shape with an element that counts rows."""
    shard, rank, sizes = op.shard(0), op.rank(0), op.sizes_in(1)
    if rank is None or sizes is None or not isinstance(op.placements[0], Replicate | Shard):
        return None
    if shard is not None:
        axis = shard.axis + len(sizes) - rank
        sizes = _replace_largest(op, shard, axis, sizes)
        rows = op.facts.rows_of(sizes[axis])
        is_whole = shard.rows.is_total(sizes[axis])
        if not is_whole and (rows is None or not op.try_align(shard, Shard(shard.axis, rows))):
            return None
        _set_result_dims(op, 1)
        return Decision([LOCAL, local_size(axis, shard.rows)], [shard.on_axis(axis)])
    found = counted_axis(op, 1)
    if found is None:
        return None
    axis, rows = found
    mine = axis - (len(sizes) - rank)
    _set_result_dims(op, 1)
    if mine < 0 or op.inputs[0].shape[mine] == 1:
        return Decision([REPLICATE, local_size(axis, rows)], [Shard(axis, rows, uniform=True)])
    return Decision([BroadcastRows(Shard(mine, rows)), local_size(axis, rows)], [Shard(axis, rows)])


def _replace_largest(op: Operation, shard: Shard, axis: int, sizes: Any) -> Any:
    """Replace max(rows of A, rows of B) in a shape by the tensor's own rows.

    Keras computes the shape of two broadcast tensors with this maximum. Rows can be broadcast only
    to the same number, unless there is a single row. So, as in a sum of two batches, both batches
    are assumed to have equally many rows, with a check.
    """
    size = sizes[axis]
    largest = size.only_symbol() if isinstance(size, Size) else None
    if not isinstance(largest, Element) or largest.tensor.op.type != "Maximum":
        return sizes
    mine, other = (op.facts.sizes_in(t) for t in largest.tensor.op.inputs)
    if mine is None or other is None or mine.size != 1 or other.size != 1:
        return sizes
    rows, others = op.facts.rows_of(mine.item()), op.facts.rows_of(other.item())
    if rows is None or others is None:
        return sizes
    is_one = any(batch.is_total(shard.rows.total) for batch in (rows, others))
    if not is_one or not op.facts.merge_rows(rows, others, op.op):
        return sizes
    sizes = sizes.copy()
    sizes[axis] = shard.rows.total
    op.set_sizes(largest.tensor, mine)
    op.set_sizes(op.inputs[1], sizes)
    return sizes


@rule("Tile")
def tile(op: Operation) -> Decision | None:
    """Repeat a tensor along its axes."""
    shard, rank, times = op.shard(0), op.rank(0), op.sizes_in(1)
    if rank is None or times is None:
        return None
    if shard is not None:
        n = times[shard.axis]
        if not isinstance(n, int) or n < 1 or any(map(batch_axes_in, times)):
            return None
        rows = op.add_layout(Rows(shard.rows.segments * n))
        return Decision([LOCAL, REPLICATE], [Shard(shard.axis, rows, shard.uniform)])
    found = counted_axis(op, 1)
    if found is None or not isinstance(op.placements[0], Replicate):
        return None
    axis, rows = found
    if op.inputs[0].shape[axis] != 1:
        return None
    return Decision([REPLICATE, local_size(axis, rows)], [Shard(axis, rows, uniform=True)])


@rule("BatchToSpaceND", "SpaceToBatchND")
def move_blocks(op: Operation) -> Decision | None:
    """Move blocks into the batch, with a segment for each element of a block; or move them back."""
    shard, block = op.shard(0), op.constant(1)
    if shard is None or shard.axis or block is None or op.constant(2) is None:
        return None
    count, segments = int(np.prod(block)), shard.rows.segments
    if op.type == "SpaceToBatchND":
        rows = op.add_layout(Rows(segments * count))
    else:
        rows = Rows(segments[: len(segments) // count])
        if Rows(rows.segments * count) != shard.rows:
            return None
    return Decision(op.whole_but({0: LOCAL}), [Shard(0, rows)])


@rule("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")
def pad(op: Operation) -> Decision | None:
    """Pad axes that are not divided, or compute the gradient of their padding."""
    if op.is_partial(0, SUM) and op.type != "PadV2" and op.in_body:
        return Decision([PARTIAL, REPLICATE], [PARTIAL])
    shard, paddings = op.shard(0), _find_paddings(op)
    if shard is None or paddings is None or any(p[shard.axis] != 0 for p in paddings):
        return None
    rest = [REPLICATE] * (len(op.inputs) - 1)

    def mirror(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        x, *others = inputs  # Without rows, the kernel fails.
        axis, count = shard.axis, tf.shape(x)[shard.axis]
        some_rows = pad_to_one_row(x, axis, op.inputs[0].shape.rank, count)
        (mirrored,) = stage.copy_operation(op, [some_rows, *others])
        return [rows_from(mirrored, axis, 0, count)]

    write = mirror if op.type.startswith("Mirror") else None
    return Decision([LOCAL, *rest], [Shard(shard.axis, shard.rows, shard.uniform)], write)


def _find_paddings(op: Operation) -> list[Any] | None:
    """Return the sizes of the padding: before each axis, and behind each axis."""
    value = op.constant(1)
    if value is not None:
        return list(np.transpose(value))
    made = op.inputs[1].op  # The gradient of a slice concatenates two columns.
    if made.type != "ConcatV2" or len(made.inputs) != 3:
        return None
    columns = [op.facts.resolve_alias(t).op for t in made.inputs[:2]]
    if op.facts.constant_of(made.inputs[2]) not in (1, -1):
        return None
    if any(c.type != "Reshape" or c.outputs[0].shape[1:] != [1] for c in columns):
        return None
    found = [op.facts.sizes_in(c.inputs[0]) for c in columns]
    return None if any(f is None or f.ndim != 1 for f in found) else found


@rule("ConcatV2")
def concat(op: Operation) -> Decision | None:
    """Concatenate tensors; along the axis of the rows, the result has several segments."""
    axis, rank = op.constant(len(op.inputs) - 1), op.rank(0)
    if axis is None or rank is None:
        return None
    return _join_inputs(op, len(op.inputs) - 1, int(axis) % rank)


@rule("Pack")
def pack(op: Operation) -> Decision | None:
    """Stack tensors along a new axis."""
    rank = op.rank(0)
    if rank is None:
        return None
    axis = op.attr("axis") % (rank + 1)
    joined = _join_inputs(op, len(op.inputs), None)
    if joined is None or not isinstance(joined.output_placements[0], Shard):
        return joined
    shard = joined.output_placements[0]
    return Decision(joined.input_forms, [shard.on_axis(shard.axis + (axis <= shard.axis))])


def _join_inputs(op: Operation, count: int, axis: int | None) -> Decision | None:
    """Join the first inputs along an axis that all of them have, or along a new axis."""
    data, placements = range(count), op.placements[:count]
    if any(op.is_partial(index, SUM) for index in data):
        if not all(p == PARTIAL or isinstance(p, Replicate) for p in placements):
            return None
        return Decision(op.whole_but(dict.fromkeys(data, PARTIAL)), [PARTIAL])
    shards = [p for p in placements if isinstance(p, Shard)]
    if not shards or not all(isinstance(p, Shard | Replicate) for p in placements):
        return None
    main = next((s for s in shards if not s.uniform), shards[0]).as_plain()
    if main.axis != axis:
        forms = op.whole_but({index: op.rows_form(index, main) for index in data})
        uniform = all(isinstance(p, Shard) and p.uniform for p in placements)
        return Decision(forms, [Shard(main.axis, main.rows, uniform)])
    if len(shards) < count or any(s.axis != axis for s in shards):
        return None
    rows = op.add_layout(Rows(tuple(segment for s in shards for segment in s.rows.segments)))
    return Decision(op.whole_but(dict.fromkeys(data, LOCAL)), [Shard(axis, rows)])


@rule("OneHot")
def one_hot(op: Operation) -> Decision | None:
    """Make a one-hot vector of each index."""
    shard, rank = op.shard(0), op.rank(0)
    if shard is None or rank is None:
        return None
    axis = op.attr("axis")
    axis = rank if axis == -1 else axis
    out = shard.as_plain().on_axis(shard.axis + (axis <= shard.axis))
    return Decision([LOCAL, REPLICATE, REPLICATE, REPLICATE], [out])


@rule("Range")
def number_rows(op: Operation) -> Decision | None:
    """Number the rows of the batch, with integers or floating-point numbers."""
    limit, dtype = op.sizes_in(1), op.outputs[0].dtype
    if dtype in (tf.float32, tf.float64) and op.inputs[1].op.type == "Cast":
        limit = op.facts.sizes_in(op.inputs[1].op.inputs[0])
    if op.constant(0) != 0 or op.constant(2) != 1 or limit is None:
        return None
    rows = op.facts.rows_of(limit.item())
    if rows is None:
        return None

    def number_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        blocks = stage.global_row_blocks(rows, dtype)
        return [tf.concat([tf.range(first, first + count) for count, first in blocks], 0)]

    forms: list[Form] = [REPLICATE, NOT_READ, REPLICATE]
    op.set_dims(op.outputs[0], [rows.total])
    within = rows if dtype.is_integer else None
    return Decision(forms, [Shard(0, rows, within=within)], number_local_rows, needs=[rows])
