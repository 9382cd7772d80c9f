"""Sizes in the integer tensors of a step, as functions of the sizes of its batches.

TensorFlow's programs compute shapes with ordinary operations (`tf.shape(x)[0] * 2`). Reading these
operations tells which axis of a result counts the rows of a batch. Arrays of sizes have the type
`object`, so NumPy computes with sizes as with numbers.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from .placements import Replicate
from .sizes import AnySize, Element, Size, as_size, divide_exactly

_MOST_ELEMENTS = 64  # Elements; longer vectors are no shapes.


class _UnknownError(Exception):
    """The elements of a tensor do not follow from known sizes."""


def read_sizes(facts: Any, tensor: Any) -> Any:
    """Return the sizes in an integer tensor of rank 0 or 1, an array; `None` for all other tensors.

    `facts` has the placement of the tensor.
    """
    shape = tensor.shape
    if not tensor.dtype.is_integer or shape.rank not in (0, 1):
        return None
    if shape.rank and (shape[0] is None or shape[0] > _MOST_ELEMENTS):
        return None
    if tensor.op.type == "Const":
        value = tensor_util.constant_value(tensor)
        return None if value is None else _make_array(value)
    if not isinstance(facts.placement_of(tensor), Replicate):
        return None
    try:
        result = _make_array(_read_operation(facts, tensor))
    except _UnknownError:
        return _constant_or_symbols(tensor)
    return result if result.shape == tuple(shape.as_list()) else None


def _read_operation(facts: Any, tensor: Any) -> Any:
    op = tensor.op
    if op.type == "Rank":
        return _require_known(op.inputs[0].shape.rank)
    if op.type in ("Shape", "ShapeN", "Size"):
        dims = _require_known(facts.dims_of(op.inputs[tensor.value_index]))
        return math.prod(dims) if op.type == "Size" else dims
    reader = _require_known(_READERS.get(op.type))
    inputs = [facts.sizes_in(t) for t in op.inputs]
    if op.type == "Reshape" and inputs[0] is None:
        inputs[0] = _read_matrix(facts, facts.resolve_alias(op.inputs[0]))
    results = reader(op, *map(_require_known, inputs))
    return results[tensor.value_index] if isinstance(results, list) else results


def _constant_or_symbols(tensor: Any) -> Any:
    """Return a tensor's constant value; if it has none, a symbol for each element."""
    if tensor.op.type != "Placeholder":
        value = tensor_util.constant_value(tensor)
        # The axes of `tf.vectorized_map`, compared with 0, need an evaluation.
        if value is None:
            value = tensor_util.try_evaluate_constant(tensor)
        if value is not None:
            return _make_array(value)
    count = tensor.shape.num_elements()
    symbols = [as_size(Element(tensor, index)) for index in range(count)]
    return _make_array(symbols).reshape(tensor.shape.as_list())


def _make_array(values: Any) -> Any:
    values = np.asarray(values)
    array = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        size = values[index]
        array[index] = size if isinstance(size, Size) else int(size)
    return array


def _require_known(value: Any) -> Any:
    if value is None:
        raise _UnknownError
    return value


def _require_integers(sizes: Any) -> Any:
    """Return sizes as integers, if all are known while tracing."""
    if not all(isinstance(size, int) for size in sizes.flat):
        raise _UnknownError
    return sizes.astype(int)


def _read_matrix(facts: Any, tensor: Any) -> Any:
    """Return the sizes in a matrix, as the gradients of paddings and repetitions make."""
    op = tensor.op
    if op.type == "Slice":
        value, begin, count = (_require_known(facts.constant_of(t)) for t in op.inputs)
        ends = np.where(count == -1, value.shape, begin + count)
        return _make_array(value[tuple(map(slice, begin, ends))])
    if op.type == "Transpose" and np.array_equal(facts.constant_of(op.inputs[1]), [1, 0]):
        stacked = facts.resolve_alias(op.inputs[0]).op
        if stacked.type == "Pack" and not stacked.get_attr("axis"):
            return np.stack([_require_known(facts.sizes_in(t)) for t in stacked.inputs], 1)
    return None


# Readers. A reader gets the operation and the sizes in its inputs, and returns the sizes in the
# result; for an operation with several results, a list.


def _reshape(op: Any, sizes: Any, *_: Any) -> Any:
    shape = op.outputs[0].shape
    return (
        sizes.reshape(shape.as_list())
        if shape.num_elements() == sizes.size
        else _require_known(None)
    )


def _split_by_sizes(op: Any, vector: Any, sizes: Any, _: Any) -> Any:
    counts = _require_integers(sizes)
    rest = len(vector) - sum(counts[counts != -1])
    return np.split(vector, np.cumsum(np.where(counts == -1, rest, counts))[:-1])


def _strided_slice(op: Any, vector: Any, *bounds: Any) -> Any:
    if not vector.ndim:  # A slice of a scalar can only add axes.
        return vector.reshape(op.outputs[0].shape.as_list())
    begin, end, strides = map(_require_integers, bounds)
    if op.get_attr("new_axis_mask") or op.get_attr("ellipsis_mask") or len(begin) != 1:
        raise _UnknownError
    if op.get_attr("shrink_axis_mask"):
        return vector[begin[0]]
    first = None if op.get_attr("begin_mask") else begin[0]
    last = None if op.get_attr("end_mask") else end[0]
    return vector[first : last : strides[0]]


def _slice(op: Any, vector: Any, *bounds: Any) -> Any:
    (begin,), (count,) = map(_require_integers, bounds)
    return vector[begin:] if count == -1 else vector[begin : begin + count]


def _stitch(op: Any, *inputs: Any) -> Any:
    half = len(inputs) // 2
    found: dict[int, AnySize] = {}
    for index, values in zip(inputs[:half], inputs[half:], strict=True):
        if index.shape != values.shape:
            raise _UnknownError
        found |= zip(_require_integers(index).flat, values.flat, strict=True)
    if not found or set(found) != set(range(len(found))):
        raise _UnknownError
    return np.array([found[index] for index in range(len(found))])


def _reduce_with(reduce: Callable[[AnySize, AnySize], AnySize]) -> Any:
    def read(op: Any, vector: Any, axes: Any) -> Any:
        if not axes.size or not vector.size:
            raise _UnknownError
        return _make_array(functools.reduce(reduce, vector)).reshape(op.outputs[0].shape.as_list())

    return read


def _broadcast_with(compute: Callable[[AnySize, AnySize], AnySize]) -> Any:
    return lambda op, a, b: np.frompyfunc(compute, 2, 1)(a, b)


def _divide_with(divide: Callable[[int, int], int], *, is_remainder: bool = False) -> Any:
    """Return a reader that divides numbers; a quotient of sizes has to be exact."""

    def compute(a: AnySize, b: AnySize) -> Any:
        if isinstance(a, int) and isinstance(b, int) and b:
            return divide(a, b)
        exact = _require_known(divide_exactly(a, b))
        return 0 if is_remainder else exact

    return _broadcast_with(compute)


def _truncate_divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _cast(op: tf.Operation, sizes: Any) -> Any:
    """Return the sizes, unless a narrow type may wrap."""
    dtype = op.outputs[0].dtype
    fits = (isinstance(size, int) and dtype.min <= size <= dtype.max for size in sizes.flat)
    if dtype not in (tf.int32, tf.int64) and not all(fits):
        raise _UnknownError
    return sizes


def _take_maximum(a: AnySize, b: AnySize) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _require_known(None)


def _take_minimum(a: AnySize, b: AnySize) -> Any:
    return -1 * _take_maximum(-1 * a, -1 * b)


def _broadcast_args(op: Any, *shapes: Any) -> Any:
    longest = max(map(len, shapes))
    mine, other = ([1] * (longest - len(shape)) + shape.tolist() for shape in shapes)
    result: list[AnySize] = []
    for index, (a, b) in enumerate(zip(mine, other, strict=True)):
        known = [size for size in (a, b) if isinstance(size, int) and size != 1]
        if a == b or b == 1 or a == 1:
            result.append(b if a == 1 else a)
        else:  # Either of two unknown sizes may be 1.
            result.append(known[0] if known else as_size(Element(op.outputs[0], index)))
    return np.array(result)


def _concat_offsets(op: Any, axis: Any, *shapes: Any) -> Any:
    is_axis = np.arange(len(shapes[0])) == _require_integers(axis)
    before = itertools.accumulate(shapes[:-1], operator.add, initial=np.zeros_like(shapes[0]))
    return [np.where(is_axis, total, 0) for total in before]


_READERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Identity", "StopGradient"), lambda op, sizes: sizes),
    **dict.fromkeys(("EnsureShape", "ExpandDims", "Reshape", "Squeeze"), _reshape),
    **dict.fromkeys(("Add", "AddV2"), lambda op, a, b: a + b),
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitch),
    "BroadcastArgs": _broadcast_args,
    "BroadcastTo": lambda op, sizes, shape: np.broadcast_to(sizes, _require_integers(shape)),
    "Cast": _cast,
    "ConcatOffset": _concat_offsets,
    "ConcatV2": lambda op, *values: np.concatenate(values[:-1]),
    "Fill": lambda op, shape, size: np.full(_require_integers(shape), size.item(), object),
    "FloorDiv": _divide_with(operator.floordiv),
    "FloorMod": _divide_with(operator.mod, is_remainder=True),
    "GatherV2": lambda op, vector, index, axis: vector[_require_integers(index)],
    "InvertPermutation": lambda op, order: np.argsort(_require_integers(order)),
    "Max": _reduce_with(_take_maximum),
    "Maximum": _broadcast_with(_take_maximum),
    "Min": _reduce_with(_take_minimum),
    "Minimum": _broadcast_with(_take_minimum),
    "Mod": _divide_with(lambda a, b: a - b * _truncate_divide(a, b), is_remainder=True),
    "Mul": lambda op, a, b: a * b,
    "Neg": lambda op, sizes: sizes * -1,
    "Pack": lambda op, *sizes: np.stack(sizes),
    "Prod": _reduce_with(operator.mul),
    "Range": lambda op, *bounds: np.arange(*map(_require_integers, bounds)),
    "Slice": _slice,
    "Split": lambda op, axis, vector: np.split(vector, len(op.outputs)),
    "SplitV": _split_by_sizes,
    "StridedSlice": _strided_slice,
    "Sub": lambda op, a, b: a - b,
    "Sum": _reduce_with(operator.add),
    "TruncateDiv": _divide_with(_truncate_divide),
    "Unpack": lambda op, vector: [*vector],
}
