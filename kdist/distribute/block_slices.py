"""Whether a slice divides again what was concatenated: rows of several batches, one by one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .. import _upstream
from .reduction_kinds import Kind


def takes_batches(operation: Any, kind_of: Callable[[Any], Kind], static_rows: int | None) -> bool:
    """Whether a split or a slice of rows takes whole batches, each with a row of every sample.

    Two views of each sample may be concatenated, so that the model is called once, and divided
    again after it.

    Args:
        operation: A `Split` or `StridedSlice` of rows.
        kind_of: Returns the kind of a tensor.
        static_rows: Rows of this replica, if known.
    """
    if operation.type == "Split":
        is_along_rows = _upstream.is_along_rows(*operation.inputs)
        batches = _upstream.joined_batches(operation.inputs[1])
        return bool(is_along_rows and batches % operation.get_attr("num_split") == 0)
    rows, begin, end, strides = operation.inputs
    steps = tf.get_static_value(strides)
    others = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    if steps is not None and not len(steps):
        return True  # x[()]
    if steps is None or steps[0] != 1 or any(operation.get_attr(name) & 1 for name in others):
        return False
    bounds = [
        bound.op.inputs[0] if bound.op.type == "Pack" else bound
        for bound, mask in ((begin, "begin_mask"), (end, "end_mask"))
        if not operation.get_attr(mask) & 1
    ]
    batch = static_rows if _upstream.joined_batches(rows) > 1 else rows.shape[0]
    return all(is_whole_batches(bound, kind_of, batch) for bound in bounds)


def is_whole_batches(number: Any, kind_of: Callable[[Any], Kind], batch: int | None) -> bool:
    """Whether a number of rows, or the first of several, is that of whole batches, or 0.

    Args:
        number: An integer tensor.
        kind_of: Returns the kind of a tensor.
        batch: Rows of a batch, if known.
    """
    value = _upstream.constant_value(number)
    if value is not None:
        first = np.ravel(value)[0]
        return bool(first == 0 or (batch and first % batch == 0))
    if kind_of(number) is not Kind.COUNT:
        return False
    # Other operations may have made it half of a batch.
    while number.op.type in _OF_COUNTS:
        if not number.dtype.is_integer:
            return False
        number = number.op.inputs[0]
    return number.op.type in ("Shape", "Const", "Size")


_OF_COUNTS = {"StridedSlice", "Unpack", "Cast", "Identity", "Reshape", "Squeeze", "FloorDiv"}


def counts_batches(operation: Any, static_rows: int | None) -> bool:
    """Whether half (or another part) of a number of rows is that of whole batches.

    Args:
        operation: A `FloorDiv`, whose dividend is the number of rows of a tensor.
        static_rows: Rows of this replica, if known.
    """
    count, divisor = operation.inputs[0], tf.get_static_value(operation.inputs[1])
    while count.op.type in ("StridedSlice", "Cast", "Identity"):
        count = count.op.inputs[0]
    if not divisor or np.ndim(divisor):
        return False
    if count.op.type == "Const":
        size = np.ravel(tf.get_static_value(count))[0]
        return bool(static_rows and size // divisor % static_rows == 0)
    is_size = count.op.type == "Shape"
    return is_size and bool(_upstream.joined_batches(count.op.inputs[0]) % divisor == 0)
