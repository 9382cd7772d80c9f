"""Which rows of its input an operation takes."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util


def is_along_rows(axis: Any, tensor: Any) -> bool:
    """Whether an axis, or one of several axes, may be the first axis of a tensor."""
    values = tf.get_static_value(axis)
    if values is None or not tensor.shape.rank:
        return True
    return bool(0 in np.atleast_1d(values) % tensor.shape.rank)


def takes_all_rows(operation: Any) -> bool:
    """Whether a slice keeps the rows of all samples."""
    kind, inputs = operation.type, operation.inputs
    if kind == "Unpack":
        rank = inputs[0].shape.rank
        return rank is not None and bool(operation.get_attr("axis") % rank)
    if kind == "Split":
        return not is_along_rows(inputs[0], inputs[1])
    if kind == "SplitV":
        return not is_along_rows(inputs[2], inputs[0])
    if kind == "Slice":
        begin, size = (tf.get_static_value(part) for part in inputs[1:])
        return begin is not None and size is not None and begin[0] == 0 and size[0] == -1
    masks = ("begin_mask", "end_mask", "ellipsis_mask")
    begin, end, ellipsis = (operation.get_attr(name) & 1 for name in masks)
    strides = tf.get_static_value(inputs[3])
    return bool(ellipsis or (begin and end and strides is not None and strides[0] == 1))


def puts_axis_first(operation: Any) -> bool:
    """Whether a slice takes all rows, and puts a new axis before that of the rows."""
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
    begin, end, ellipsis, new = map(operation.get_attr, names)
    is_short = operation.inputs[1].shape == [1]
    return bool(new & 1 and (is_short or (begin & end | ellipsis) & 2))


def is_reversed(operation: Any) -> bool:
    """Whether a slice takes the rows from the last to the first."""
    strides = tf.get_static_value(operation.inputs[3])
    return strides is not None and len(strides) > 0 and strides[0] < 0


def limit_of_order(indices: Any) -> Any | None:
    """Return where indices 0, 1, 2, … end, a tensor; `None` if they are none of these."""
    if indices.op.type != "Range":
        return None
    start, limit, delta = indices.op.inputs
    return limit if _is_all(start, 0) and _is_all(delta, 1) else None


def is_by_sample(indices: Any) -> bool:
    """Whether these are the row numbers by which `tf.vectorized_map` takes each sample."""
    # If there is a single row, it is used for all.
    operation = indices.op
    is_choice = operation.type == "SelectV2" and _is_all(operation.inputs[2], 0)
    return is_choice and limit_of_order(operation.inputs[1]) is not None


def _is_all(tensor: Any, number: int) -> bool:
    value = tf.get_static_value(tensor)
    return value is not None and value.ndim == 0 and bool(value == number)


def is_an_order(indices: Any) -> bool:
    """Whether indices are row numbers in some order, not those of rows that meet a condition."""
    while indices.op.type in _OF_NUMBERS:
        numbers = [one for one in indices.op.inputs if one.dtype.is_integer][:2]
        if not numbers:
            return False
        is_lookup = indices.op.type == "GatherV2"
        indices = numbers[-1] if is_lookup else max(numbers, key=lambda one: one.shape.rank or 0)
    return indices.op.type in ("Range", "Const", "TopKV2")


_OF_NUMBERS = {
    *("Reshape", "Squeeze", "ExpandDims", "Cast", "Identity", "StridedSlice", "Slice", "GatherV2"),
    *("AddV2", "Sub", "FloorMod", "SelectV2", "ReverseV2", "Roll", "RandomShuffle"),
}


def constant_value(tensor: Any) -> Any:
    """The value of a tensor if it is computed from constants alone; otherwise `None`."""
    value = tf.get_static_value(tensor)
    return tensor_util.try_evaluate_constant(tensor) if value is None else value
