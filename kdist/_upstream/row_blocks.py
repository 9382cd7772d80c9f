"""Find the rows of the global batch that belong to a tensor of this replica."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from .active_batch import RowPlaces
from .row_slices import is_along_rows, takes_all_rows


class Block(NamedTuple):
    """Consecutive rows of a tensor that are also consecutive in the global batch's tensor."""

    count: Any
    """Rows of the block on this replica."""
    before: Any
    """Rows of other blocks before this one in the global batch's tensor, int64."""
    first: Any
    """Its first row in the global batch's tensor, int64: `before` plus other replicas' rows."""
    total: Any
    """Rows of the block over all replicas, int64."""


def row_blocks(batch: RowPlaces, shape: Any, source: Any = None) -> list[Block] | None:
    """Return the blocks of a tensor of this shape; `None` if its rows are not the batch's.

    Rows are taken for the batch's if their number is unknown before the step runs, or equal to the
    replica's. A tensor may have several consecutive rows per sample (steps, windows), or contain
    several batches (`ops.concatenate([fake, real])`): then there are several blocks.

    Args:
        batch: The active batch.
        shape: The shape, a 1-D integer tensor.
        source: The tensor that has this shape, if there is one.
    """
    known = tensor_util.constant_value_as_shape(shape)
    if not known.rank:
        return None
    counts = _concatenated(shape if source is None else source, is_shape=source is None)
    if counts is None:
        return None
    counts = counts or [shape[0] if known[0] is None else known[0]]
    blocks: list[Block] = []
    before: Any = 0
    for count in counts:
        each = _rows_per_sample(batch, count, guess=source is not None)
        if each is None:
            return None
        total = batch.global_rows * each
        blocks.append(Block(count, before, before + batch.first_row * each, total))
        before += total
    return blocks


def joined_batches(tensor: Any) -> int:
    """Return of how many batches a tensor contains the rows: 2 after `tf.concat([x, y], 0)`.

    It is 1 if this cannot be read from the graph.
    """
    return len(_concatenated(tensor) or ()) or 1


def _rows_per_sample(batch: RowPlaces, count: Any, *, guess: bool) -> Any:
    if isinstance(count, int):
        rows = batch.static_rows
        if not rows or count % rows or (count != rows and not guess):
            return None
        return count // rows
    rows = tf.maximum(tf.cast(batch.rows, count.dtype), 1)
    return tf.cast(-(-count // rows), "int64")  # rounded up, so that replicas never overlap


_UNCHANGED = {"Cast", "Identity", "StopGradient", "EnsureShape", "CheckNumerics"}
_LONGEST_WALK = 20_000


def _concatenated(tensor: Any, *, is_shape: bool = False) -> list[Any] | None:
    """Return the rows of the parts that a tensor was concatenated from; empty if it was not.

    Walks back through the graph along the rows, which takes microseconds per operation. Returns
    `None` if the rows are not those of a batch: the shape begins with another axis.

    Args:
        tensor: The tensor, or its shape as a 1-D integer tensor.
        is_shape: Whether it is the shape.
    """
    if not _is_symbolic(tensor):
        return []
    for _ in range(_LONGEST_WALK):
        operation = tensor.op
        kind = operation.type
        if is_shape:
            if kind == "StridedSlice" and not _begins_with_rows(operation):
                return None
            if kind not in _OF_SHAPES:
                return []
            is_shape = kind != "Shape"
            tensor = operation.inputs[0]
            continue
        if kind == "ConcatV2" and _joins_rows(operation):
            return [rows for part in operation.inputs[:-1] for rows in _rows_of(part)]
        if kind == "Split":
            return _part_of_split(tensor, operation)
        if _takes_some_rows(operation):
            return []
        if kind in ("Fill", "RandomStandardNormal", "RandomUniform", "BroadcastTo"):
            tensor = operation.inputs[1 if kind == "BroadcastTo" else 0]
            is_shape = True
            continue
        previous = next(_inputs_with_rows(tensor, operation), None)
        if previous is None:
            return []
        tensor = previous
    return []


_OF_SHAPES = {"Shape", "Pack", "ConcatV2", "StridedSlice", *_UNCHANGED}


def _joins_rows(operation: Any) -> bool:
    rank = operation.outputs[0].shape.rank
    return rank is not None and tf.get_static_value(operation.inputs[-1]) in (0, -rank)


def _part_of_split(tensor: Any, operation: Any) -> list[Any]:
    """Return the rows of the parts that this output of a split contains."""
    counts = _concatenated(operation.inputs[1]) or []
    if takes_all_rows(operation):
        return counts
    each, rest = divmod(len(counts), operation.get_attr("num_split"))
    return [] if rest else counts[tensor.value_index * each : (tensor.value_index + 1) * each]


def _takes_some_rows(operation: Any) -> bool:
    """Whether the result has other rows than the input, such as some of them."""
    if operation.type == "GatherV2":
        return is_along_rows(operation.inputs[2], operation.inputs[0])
    is_slice = operation.type in ("StridedSlice", "Slice", "SplitV", "Unpack")
    return is_slice and not takes_all_rows(operation)


def _rows_of(part: Any) -> list[Any]:
    known = part.shape[0]
    return _concatenated(part) or [tf.shape(part)[0] if known is None else int(known)]


def _begins_with_rows(operation: Any) -> bool:
    begin = tf.get_static_value(operation.inputs[1])
    return begin is not None and len(begin) == 1 and begin[0] == 0


def _inputs_with_rows(tensor: Any, operation: Any) -> Iterator[Any]:
    """Yield the inputs of an operation that have the same rows as its output."""
    if operation.type == "Reshape" and not _keeps_rows(operation):
        return
    if operation.type == "Transpose":
        order = tf.get_static_value(operation.inputs[1])
        if order is None or order[0] != 0:
            return
    if operation.type == "IdentityN":
        yield operation.inputs[tensor.value_index]
        return
    for other in operation.inputs:
        if other.shape.rank and other.shape[0] == tensor.shape[0]:
            yield other


def _keeps_rows(operation: Any) -> bool:
    before, after = operation.inputs[0].shape, operation.outputs[0].shape
    if not before.rank or not after.rank:
        return False
    return bool(before[1:].num_elements() == after[1:].num_elements() is not None)


def _is_symbolic(tensor: Any) -> bool:
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy") and hasattr(tensor, "op")
