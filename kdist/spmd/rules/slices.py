"""Slices and splits of axes that are not divided, or into whole segments of the divided axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..operation import LOCAL, Decision, Form, LocalSizes, Operation, Tensors, local_size, rule
from ..placements import PARTIAL, REPLICATE, Partial, Shard
from ..replica_reductions import SUM, Moments
from ..rows import Rows
from ..sizes import AnySize, divide_exactly
from ..stage import Stage
from .shapes import may_be_minus_one


def _count_segments(rows: Rows, size: AnySize) -> int | None:
    """Return the number of first segments that together have `size` rows; `None` without any."""
    counts = range(len(rows.segments) + 1)
    return next((n for n in counts if Rows(rows.segments[:n]).is_total(size)), None)


class _Strided:
    """A strided slice of a tensor of a known rank.

    `first` is the index of the input `begin`; `end` and `strides` follow.

    Attributes:
        axes: For each axis of the tensor, the index of its slice in `begin`, `None` for an axis
            that is taken whole; and its axis in the result, `None` if a single element is taken.
            Empty if the slices are unknown.
    """

    def __init__(self, op: Operation, first: int, rank: int) -> None:
        self.axes: list[tuple[int | None, int | None]] = []
        self._begin, self._end, self._strides = (op.sizes_in(first + i) for i in range(3))
        if any(sizes is None for sizes in (self._begin, self._end, self._strides)):
            return
        names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        self._masks = {name: op.attr(f"{name}_mask") for name in names}
        count = len(self._begin)
        indices: list[int | None] = [*range(count)]
        dots = next((i for i in range(count) if self._is_in_mask("ellipsis", i)), count)
        sliced = [i for i in indices if i != dots and not self._is_in_mask("new_axis", i)]
        indices[dots : dots + 1] = [None] * (rank - len(sliced))
        out = 0
        for index in indices:
            if self._is_in_mask("new_axis", index):
                out += 1
                continue
            is_single = self._is_in_mask("shrink_axis", index)
            self.axes.append((index, None if is_single else out))
            out += not is_single

    def _is_in_mask(self, mask: str, index: int | None) -> bool:
        return index is not None and bool(self._masks[mask] >> index & 1)

    def takes_first(self, axis: int) -> bool:
        """Whether only the first element of an axis is taken, without its axis."""
        index, out = self.axes[axis] if self.axes else (None, None)
        return index is not None and out is None and self._begin[index] == 0

    def rows(self, axis: int, rows: Rows) -> tuple[int, Rows, Form, Form] | None:
        """Return the result's axis of the rows, the remaining rows, and forms of `begin`, `end`."""
        index, out = self.axes[axis] if self.axes else (None, None)
        if out is None:
            return None
        if index is None:
            return out, rows, REPLICATE, REPLICATE
        first = 0 if self._is_in_mask("begin", index) else _count_segments(rows, self._begin[index])
        takes_rest = self._is_in_mask("end", index) or rows.is_total(self._end[index])
        last = len(rows.segments) if takes_rest else _count_segments(rows, self._end[index])
        if self._strides[index] != 1 or first is None or last is None or first >= last:
            return None
        begin = local_size(index, Rows(rows.segments[:first])) if first else REPLICATE
        end = local_size(index, Rows(rows.segments[:last]))
        return out, Rows(rows.segments[first:last]), begin, end


@rule("StridedSlice")
def strided_slice(op: Operation) -> Decision | None:
    """Slice `x[:, 1:, ..., None]`."""
    if op.is_partial(0, SUM):
        return Decision([PARTIAL, REPLICATE, REPLICATE, REPLICATE], [PARTIAL])
    shard, rank = op.shard(0), op.rank(0)
    if rank is None:
        return None
    strided = _Strided(op, 1, rank)
    named = op.named_rows(0)
    if named is not None and not strided.takes_first(rank - 1):
        named = None
    if named is not None and rank == 1:
        return _take_row_count(op, named)
    if shard is None:
        return None
    found = strided.rows(shard.axis, shard.rows)
    if found is None:
        return None
    axis, rows, begin, end = found
    out = Shard(axis, rows, shard.uniform, named or shard.within)
    return Decision([LOCAL, begin, end, REPLICATE], [out])


def _take_row_count(op: Operation, rows: Rows) -> Decision:

    def write_count(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        return [stage.write_size(rows.total, op.outputs[0].dtype)]

    op.set_sizes(op.outputs[0], np.array(rows.total, object))
    return Decision(
        [LOCAL, REPLICATE, REPLICATE, REPLICATE], [REPLICATE], write_count, needs=[rows]
    )


@rule("StridedSliceGrad")
def strided_slice_gradient(op: Operation) -> Decision | None:
    """Compute the gradient of a strided slice, from shape, begin, end, strides and gradient."""
    if op.is_partial(4, SUM) and op.in_body:
        # Outside of bodies the gradient is reduced first, as it has fewer elements.
        return Decision([REPLICATE, REPLICATE, REPLICATE, REPLICATE, PARTIAL], [PARTIAL])
    gradient, shape = op.shard(4), op.sizes_in(0)
    if gradient is None or shape is None:
        return None
    rank = len(shape)
    strided = _Strided(op, 1, rank)
    for axis in range(rank):
        found = _find_sliced_rows(strided, axis, shape[axis], gradient)
        if found is not None:
            rows, begin, end = found
            forms = [local_size(axis, rows), begin, end, REPLICATE, LOCAL]
            return Decision(forms, [Shard(axis, rows)])
    return None


def _find_sliced_rows(strided: _Strided, axis: int, size: AnySize, gradient: Shard) -> Any:
    """Return the rows of the sliced axis and forms, if the gradient has some of its segments."""
    if not strided.axes or strided.axes[axis][1] != gradient.axis:
        return None
    rows = gradient.rows
    if not rows.is_total(size):
        # The gradient has some of several concatenated batches, which all have the same rows.
        segment = rows.segments[0]
        times = divide_exactly(size, Rows((segment,)).total)
        if not isinstance(times, int):
            return None
        rows = Rows((segment,) * times)
    found = strided.rows(axis, rows)
    if found is None or found[1] != gradient.rows:
        return None
    return rows, found[2], found[3]


@rule("Slice")
def slice_(op: Operation) -> Decision | None:
    """Slice by begin and size."""
    if op.is_partial(0, SUM):
        return Decision([PARTIAL, REPLICATE, REPLICATE], [PARTIAL])
    shard, begin, size = op.shard(0), op.sizes_in(1), op.sizes_in(2)
    if begin is None or size is None:
        return None
    _set_dims(op, begin, size)
    if shard is None:
        return None
    axis, rows = shard.axis, shard.rows
    first = _count_segments(rows, begin[axis])
    if first is None or first >= len(rows.segments):
        return None
    rest = Rows(rows.segments[first:])
    count = size[axis]
    if count == -1 or rest.is_total(count):
        last: int | None = len(rest.segments)
    else:
        last = _count_segments(rest, count)
    if not last:
        return None
    kept = Rows(rest.segments[:last])
    start = local_size(axis, Rows(rows.segments[:first])) if first else REPLICATE
    return Decision([LOCAL, start, local_size(axis, kept)], [Shard(axis, kept, shard.uniform)])


def _set_dims(op: Operation, begin: Any, size: Any) -> None:
    """Set the result's sizes from the sizes of the slice; -1 stands for the rest of an axis."""
    dims, output = op.dims(0), op.outputs[0]
    if dims is None or output.shape.is_fully_defined() or any(map(may_be_minus_one, size)):
        return
    left = [a - b for a, b in zip(dims, begin, strict=True)]
    static = output.shape.as_list() if output.shape.rank == len(left) else [None] * len(left)
    found = [
        known if known is not None else rest if given == -1 else given
        for known, rest, given in zip(static, left, size, strict=True)
    ]
    op.set_dims(output, found)


@rule("Split", "SplitV")
def split(op: Operation) -> Decision | None:
    """Split along an axis that is not divided, or split concatenated batches into batches."""
    by_sizes = op.type == "SplitV"
    value = 0 if by_sizes else 1
    axis, rank, shard = op.constant(2 if by_sizes else 0), op.rank(value), op.shard(value)
    if axis is None or rank is None:
        return None
    axis = int(axis) % rank
    forms = op.whole_but({value: LOCAL})
    count = len(op.outputs)
    if op.is_partial(value, SUM):
        return Decision(forms, [PARTIAL] * count)
    if shard is None:
        return None
    if axis != shard.axis:
        return Decision(forms, [Shard(shard.axis, shard.rows, shard.uniform)] * count)
    segments = shard.rows.segments
    if by_sizes:
        return _split_by_sizes(op, shard)
    rows_per_part = divide_exactly(shard.rows.total, count)
    if rows_per_part is None or len(segments) % count:
        return None
    step = len(segments) // count
    parts = [Rows(segments[i * step : (i + 1) * step]) for i in range(count)]
    if any(part.total != rows_per_part for part in parts):
        return None
    return Decision(forms, [Shard(axis, part, shard.uniform) for part in parts])


def _split_by_sizes(op: Operation, shard: Shard) -> Decision | None:
    sizes = op.sizes_in(1)
    if sizes is None:
        return None
    segments, parts, at = shard.rows.segments, [], 0
    for size in sizes:
        rest = Rows(segments[at:])
        last = len(rest.segments) if size == -1 else _count_segments(rest, size)
        if not last:
            return None
        parts.append(Rows(rest.segments[:last]))
        at += last
    if at != len(segments):
        return None
    forms: list[Form] = [LOCAL, LocalSizes(tuple(enumerate(parts))), REPLICATE]
    return Decision(forms, [Shard(shard.axis, part, shard.uniform) for part in parts])


@rule("Unpack")
def unpack(op: Operation) -> Decision | None:
    """Unstack along an axis that is not divided."""
    rank, shard, placement = op.rank(0), op.shard(0), op.placements[0]
    if op.is_partial(0, SUM):
        return Decision([PARTIAL], [PARTIAL] * len(op.outputs))
    if isinstance(placement, Partial) and isinstance(placement.reduction, Moments):
        return Decision([REPLICATE], [REPLICATE] * len(op.outputs), _unpack)
    if shard is None or rank is None:
        return None
    axis = op.attr("axis") % rank
    if axis == shard.axis:
        return None
    out = Shard(shard.axis - (axis < shard.axis), shard.rows, shard.uniform, shard.within)
    return Decision([LOCAL], [out] * len(op.outputs))


def _unpack(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
    """Return the tensors that were stacked in this function, or else unstack the input."""
    made = inputs[0].op
    return list(made.inputs) if made.type == "Pack" else stage.copy_operation(op, inputs)
