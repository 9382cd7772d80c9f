"""Sizes in the integer tensors of a step, as functions of the sizes of its batches.

TensorFlow's programs compute shapes with ordinary operations (`tf.shape(x)[0] * 2`). Reading these
operations tells which axis of a result counts the rows of a batch.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.framework import tensor_util

from .placements import Replicate
from .sizes import AnySize, Element, Size, quotient, symbolic

_MOST = 64  # Elements; longer vectors are no shapes.
_READERS: dict[str, Callable[[Any, Any, list[Any]], Any]] = {}


def read_sizes(facts: Any, tensor: Any) -> Any:
    """Return the sizes in an integer tensor of rank 0 or 1, an array; `None` for all other tensors.

    Args:
        facts: The facts of the graph, with the placement of the tensor.
        tensor: The tensor.
    """
    shape = tensor.shape
    if not tensor.dtype.is_integer or shape.rank not in (0, 1):
        return None
    if shape.rank and (shape[0] is None or shape[0] > _MOST):
        return None
    op = tensor.op
    if op.type == "Const":
        value = tensor_util.constant_value(tensor)
        return None if value is None else _array(value)
    if not isinstance(facts.placement(tensor), Replicate):
        return None
    result = None
    if op.type in ("Shape", "ShapeN"):
        dims = facts.dims(op.inputs[tensor.value_index])
        result = None if dims is None else _array(dims)
    elif op.type == "Size":
        dims = facts.dims(op.inputs[0])
        result = None if dims is None else math.prod(dims)
    elif op.type in _READERS:
        inputs = [facts.sizes(t) for t in op.inputs]
        if op.type == "Reshape" and inputs[0] is None:
            inputs[0] = _matrix(facts, facts.canonical(op.inputs[0]))
        result = _READERS[op.type](op, tensor, inputs)
    if result is None:
        if op.type != "Placeholder":
            value = tensor_util.constant_value(tensor)
            # The axes of `tf.vectorized_map`, compared with 0, need an evaluation.
            if value is None:
                value = tensor_util.try_evaluate_constant(tensor)
            if value is not None:
                return _array(value)
        indices = range(shape[0]) if shape.rank else [0]
        values = [symbolic(Element(tensor, index)) for index in indices]
        return _array(values if shape.rank else values[0])
    result = _array(result)
    return result if result.shape == tuple(shape.as_list()) else None


def _array(values: Any) -> Any:
    values = np.asarray(values)
    made = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        size = values[index]
        made[index] = size if isinstance(size, Size) else int(size)
    return made


def _reads(*types: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for name in types:
            _READERS[name] = function
        return function

    return register


def _is_plain(value: Any) -> bool:
    return value is not None and all(isinstance(size, int) for size in np.ravel(value))


@_reads("Identity", "Cast", "StopGradient")
def _same(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    return inputs[0]


@_reads("ExpandDims", "Squeeze", "Reshape", "EnsureShape")
def _reshaped(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if inputs[0] is None or tensor.shape.num_elements() != inputs[0].size:
        return None
    return inputs[0].reshape(tensor.shape.as_list())


def _matrix(facts: Any, tensor: Any) -> Any:
    """Return the sizes in a matrix, as the gradients of paddings and repetitions make."""
    op = tensor.op
    if op.type == "Slice":
        value, begin, count = map(facts.constant, op.inputs)
        if value is None or begin is None or count is None:
            return None
        ends = [None if n == -1 else b + n for b, n in zip(begin, count, strict=True)]
        return _array(value[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))])
    if op.type == "Transpose" and np.array_equal(facts.constant(op.inputs[1]), [1, 0]):
        stacked = facts.canonical(op.inputs[0]).op
        rows: list[Any] = (
            [facts.sizes(t) for t in stacked.inputs] if stacked.type == "Pack" else [None]
        )
        if all(row is not None and row.ndim == 1 for row in rows) and not stacked.get_attr("axis"):
            return np.transpose(np.stack(rows))
    return None


@_reads("Pack")
def _pack(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if any(i is None or i.ndim for i in inputs):
        return None
    return [i.item() for i in inputs]


@_reads("ConcatV2")
def _concat(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if any(i is None or i.ndim != 1 for i in inputs[:-1]):
        return None
    return np.concatenate(inputs[:-1])


@_reads("Unpack")
def _unpack(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    return None if inputs[0] is None else inputs[0][tensor.value_index]


@_reads("Split")
def _split(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if inputs[1] is None or inputs[1].ndim != 1:
        return None
    return np.split(inputs[1], len(op.outputs))[tensor.value_index]


@_reads("SplitV")
def _split_by_sizes(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    vector, sizes, _ = inputs
    if vector is None or vector.ndim != 1 or not _is_plain(sizes):
        return None
    rest = len(vector) - sum(size for size in sizes if size != -1)
    ends = np.cumsum([rest if size == -1 else size for size in sizes])
    return np.split(vector, ends[:-1])[tensor.value_index]


@_reads("StridedSlice")
def _strided_slice(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    vector, begin, end, strides = inputs
    if vector is not None and not vector.ndim:  # A slice of a scalar can only add axes.
        return vector.reshape(tensor.shape.as_list())
    if vector is None or vector.ndim != 1 or not all(map(_is_plain, (begin, end, strides))):
        return None
    if op.get_attr("new_axis_mask") or op.get_attr("ellipsis_mask") or len(begin) != 1:
        return None
    if op.get_attr("shrink_axis_mask"):
        return vector[begin[0]]
    first = None if op.get_attr("begin_mask") else begin[0]
    last = None if op.get_attr("end_mask") else end[0]
    return vector[slice(first, last, strides[0])]


@_reads("Slice")
def _slice(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    vector, begin, count = inputs
    if vector is None or vector.ndim != 1 or not (_is_plain(begin) and _is_plain(count)):
        return None
    return vector[begin[0] :] if count[0] == -1 else vector[begin[0] : begin[0] + count[0]]


@_reads("GatherV2")
def _gather(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    vector, index, _ = inputs
    if vector is None or vector.ndim != 1 or not _is_plain(index):
        return None
    return vector[index.astype(int)] if index.ndim else vector[index.item()]


@_reads("DynamicStitch", "ParallelDynamicStitch")
def _stitch(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    half = len(inputs) // 2
    found: dict[int, AnySize] = {}
    for index, values in zip(inputs[:half], inputs[half:], strict=True):
        if not _is_plain(index) or values is None or index.shape != values.shape:
            return None
        found |= zip(index.ravel().tolist(), values.ravel().tolist(), strict=True)
    if not found or set(found) != set(range(len(found))):
        return None
    return [found[index] for index in range(len(found))]


@_reads("Prod", "Sum", "Max", "Min")
def _reduced(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    vector, axes = inputs
    if vector is None or axes is None or vector.ndim != 1 or axes.size == 0 or not vector.size:
        return None
    result = functools.reduce(_REDUCTIONS[op.type], vector.tolist())
    return [result] if op.get_attr("keep_dims") and result is not None else result


def _of_two(compute: Callable[[AnySize, AnySize], AnySize | None]) -> Any:
    def read(op: Any, tensor: Any, inputs: list[Any]) -> Any:
        if any(i is None for i in inputs):
            return None
        a, b = np.broadcast_arrays(*inputs)
        values = [compute(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
        if any(value is None for value in values):
            return None
        made = np.empty(a.shape, object)
        made.ravel()[:] = values
        return made.reshape(a.shape)

    return read


def _floor_divide(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else None
    return quotient(a, b)


def _remainder(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else None
    return 0 if quotient(a, b) is not None else None


def _extreme(choose: Callable[[int, int], int]) -> Any:
    def compute(a: AnySize | None, b: AnySize | None) -> AnySize | None:
        if isinstance(a, int) and isinstance(b, int):
            return choose(a, b)
        return a if a == b else None

    return compute


_REDUCTIONS: dict[str, Any] = {
    "Prod": operator.mul,
    "Sum": operator.add,
    "Max": _extreme(max),
    "Min": _extreme(min),
}
_reads("Add", "AddV2")(_of_two(lambda a, b: a + b))
_reads("Sub")(_of_two(lambda a, b: a - b))
_reads("Mul")(_of_two(lambda a, b: a * b))
_reads("FloorDiv", "TruncateDiv")(_of_two(_floor_divide))
_reads("FloorMod", "Mod")(_of_two(_remainder))
_reads("Maximum")(_of_two(_extreme(max)))
_reads("Minimum")(_of_two(_extreme(min)))


@_reads("Neg")
def _neg(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    return None if inputs[0] is None else inputs[0] * -1


@_reads("Fill")
def _fill(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if not _is_plain(inputs[0]) or inputs[1] is None:
        return None
    made = np.empty([int(n) for n in inputs[0]], object)
    made.fill(inputs[1].item())
    return made


@_reads("BroadcastTo")
def _broadcast(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if inputs[0] is None or not _is_plain(inputs[1]):
        return None
    return np.broadcast_to(inputs[0], [int(n) for n in inputs[1]])


@_reads("BroadcastArgs")
def _broadcast_args(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if any(i is None for i in inputs):
        return None
    longest = max(map(len, inputs))
    mine, other = ([1] * (longest - len(i)) + i.tolist() for i in inputs)
    result = []
    for index, (a, b) in enumerate(zip(mine, other, strict=True)):
        known = [size for size in (a, b) if isinstance(size, int) and size != 1]
        if a == b or b == 1 or a == 1:
            result.append(b if a == 1 else a)
        else:  # Either of two unknown sizes may be 1.
            result.append(known[0] if known else symbolic(Element(tensor, index)))
    return result


@_reads("Range")
def _range(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    if not all(map(_is_plain, inputs)):
        return None
    return list(range(*(int(i.item()) for i in inputs)))


@_reads("InvertPermutation")
def _invert(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    return np.argsort(inputs[0].astype(int)) if _is_plain(inputs[0]) else None


@_reads("ConcatOffset")
def _concat_offset(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    axis, *shapes = inputs
    before = shapes[: tensor.value_index]
    if not _is_plain(axis) or any(shape is None for shape in before):
        return None
    result: list[AnySize] = [0] * int(tensor.shape[0])
    for shape in before:
        result[axis.item()] = result[axis.item()] + shape[axis.item()]
    return result


@_reads("Rank")
def _rank(op: Any, tensor: Any, inputs: list[Any]) -> Any:
    return op.inputs[0].shape.rank
