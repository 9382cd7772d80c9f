"""What a number that a step computes is made of: means over the batch's samples, sums, or neither.

A replica's mean counts in the global batch's by its share of the samples, its sum counts whole. For
Keras's own losses that is known. What a user computes is told from TensorFlow's graph.
"""

import enum
import linecache
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Kind(enum.Enum):
    """How a tensor depends on the samples of this replica."""

    SAME = "the same on every replica"
    ROWS = "a value for each sample, or several"
    COUNT = "the number of samples, or a multiple"
    MEAN = "a mean over the samples"
    SUM = "a sum over the samples"
    OTHER = "something else, which no sum or mean of the replicas' values gives"


class Term(NamedTuple):
    """A summand of a scalar: `factor * tensor`, the factor the same on every replica."""

    tensor: Any
    factor: Any
    kind: Kind


# A tensor's history is followed this far; what is beyond counts by its shape.
_DEEPEST = 100


_PASSED_ON = {
    *("Identity", "Cast", "StopGradient", "CheckNumerics", "EnsureShape", "PreventGradient"),
    *("Reshape", "Squeeze", "ExpandDims", "Neg", "Transpose", "DeepCopy"),
    *("PlaceholderWithDefault",),
}
_ADDED = {"AddV2", "Add", "Sub", "AddN", "BiasAdd"}
_DIVIDED = {"RealDiv", "DivNoNan", "Div"}
_VALUE_BY_VALUE = {
    *("Square", "Sqrt", "Rsqrt", "Reciprocal", "Exp", "Expm1", "Log", "Log1p", "Abs", "Sign"),
    *("Sigmoid", "Tanh", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign"),
    *("Pow", "Maximum", "Minimum", "SquaredDifference", "Select", "SelectV2", "Erf", "Floor"),
    *("Round", "Sin", "Cos", "ClipByValue", "Equal", "NotEqual", "Less", "LessEqual"),
    *("Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "MulNoNan", "Xlogy"),
}
_CONSTANT = {"Const", "ReadVariableOp", "VarHandleOp", "VariableV2"}
# Whose rows are not those of single samples, wherever they work along the batch.
_MIXING = {"Where", "Unique", "UniqueV2", "RandomShuffle", "MatrixInverse", "Qr", "Svd"}


class GraphReader:
    """Reads from the operations that made a tensor how it depends on this replica's samples.

    Args:
        static_rows: Rows of this replica where they are known when the step is traced.
    """

    def __init__(self, static_rows: int | None) -> None:
        self._static_rows = static_rows
        self._known: dict[str, Kind] = {}

    def mark(self, tensor: Any, kind: Kind) -> None:
        """Note a tensor's kind, which its operations do not tell."""
        self._known[tensor.name] = kind

    def kind(self, tensor: Any, depth: int = 0) -> Kind:
        """The kind of a tensor of a graph."""
        name = tensor.name
        if name not in self._known:
            self._known[name] = self._read(tensor, depth + 1)
        return self._known[name]

    def terms(self, tensor: Any, factor: Any = 1.0, depth: int = 0) -> Sequence[Term]:
        """The summands of a scalar tensor, each of one kind."""
        kind = self.kind(tensor)
        operation = tensor.op
        inputs = operation.inputs
        if kind is not Kind.OTHER or depth > _DEEPEST:
            return [Term(tensor, factor, kind)]
        if operation.type in ("AddV2", "Add", "AddN", "Sub"):
            signs = [1.0, -1.0] if operation.type == "Sub" else [1.0] * len(inputs)
            parts = [
                self.terms(part, factor * sign, depth + 1)
                for part, sign in zip(inputs, signs, strict=True)
            ]
            return [term for part in parts for term in part]
        if operation.type == "Neg":
            return self.terms(inputs[0], -1.0 * factor, depth + 1)
        if operation.type in ("Identity", "IdentityN", "EnsureShape"):
            return self.terms(inputs[tensor.value_index], factor, depth + 1)
        if operation.type == "Mul":
            for constant, other in (inputs, inputs[::-1]):
                if tf.get_static_value(constant) is not None and not len(constant.shape):
                    return self.terms(other, factor * constant, depth + 1)
        # A factor that is no constant may be trained, and its gradient is of the whole.
        is_divided = operation.type in ("RealDiv", "DivNoNan")
        if is_divided and tf.get_static_value(inputs[1]) is not None:
            return self.terms(inputs[0], factor / inputs[1], depth + 1)
        return [Term(tensor, factor, kind)]

    def _read(self, tensor: Any, depth: int) -> Kind:
        operation = tensor.op
        kind, inputs = operation.type, operation.inputs
        if kind in _CONSTANT or tensor.dtype == tf.resource:
            return Kind.SAME
        if not inputs:
            return self._by_shape(tensor)
        if depth > _DEEPEST:
            return Kind.ROWS if self._has_rows(tensor) else Kind.OTHER

        def of(index: int) -> Kind:
            return self.kind(inputs[index], depth)

        def of_all() -> set[Kind]:
            return {self.kind(part, depth) for part in inputs}

        if kind in _PASSED_ON:
            moved = of(0) is Kind.ROWS and not self._keeps_rows_first(operation)
            return Kind.OTHER if moved else of(0)
        if kind == "IdentityN":
            return of(tensor.value_index)
        if kind in ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss"):
            return self._reduced(operation, of(0))
        if kind in ("Shape", "Size"):
            counts = of(0) is not Kind.SAME and self._has_rows(inputs[0])
            return Kind.COUNT if counts else Kind.SAME
        if kind == "StridedSlice" and inputs[0].op.type == "Shape":
            return of(0) if _is_first(operation) else Kind.SAME
        if kind in ("BroadcastTo", "Tile") and self._has_rows(tensor):
            return Kind.ROWS if of(0) in (Kind.SAME, Kind.ROWS) else Kind.OTHER
        if kind == "Range":
            return Kind.ROWS if of_all() - {Kind.SAME} else Kind.SAME
        if kind in _ADDED or kind in _VALUE_BY_VALUE or kind in ("Mul", *_DIVIDED):
            rows = [part for part in inputs if self.kind(part, depth) is Kind.ROWS]
            if len({part.shape.rank for part in rows}) > 1:
                return Kind.OTHER  # one is broadcast along the other's samples
        if kind in _ADDED:
            return _added({self.kind(part, depth) for part in inputs if not _is_zero(part)})
        if kind == "Mul":
            return _multiplied(of(0), of(1))
        if kind in _DIVIDED:
            return _divided(of(0), self._divisor(inputs[1], depth))
        if kind in _VALUE_BY_VALUE:
            return Kind.OTHER if of_all() - {Kind.SAME, Kind.ROWS} else _added(of_all())
        if kind == "Pack" and operation.get_attr("axis") == 0 and of(0) is Kind.ROWS:
            return Kind.OTHER
        if kind in ("ConcatV2", "Pack"):
            return _added(of_all() - {Kind.COUNT})
        if of_all() <= {Kind.SAME}:
            return Kind.SAME
        if self._mixes(operation, depth):
            return Kind.OTHER
        return Kind.ROWS if self._has_rows(tensor) else Kind.OTHER

    def _has_rows(self, tensor: Any) -> bool:
        rank = tensor.shape.rank
        return rank is None or (rank > 0 and tensor.shape[0] in (None, self._static_rows))

    def _by_shape(self, tensor: Any) -> Kind:
        return Kind.ROWS if self._has_rows(tensor) else Kind.SAME

    def _reduced(self, operation: Any, kind: Kind) -> Kind:
        how = operation.type
        if kind is not Kind.ROWS:
            # Sums and means over other axes of what is a mean already are means too.
            linear = how in ("Sum", "Mean") or kind is Kind.SAME
            return kind if linear or (how == "Prod" and kind is Kind.COUNT) else Kind.OTHER
        axes = 0 if how == "L2Loss" else tf.get_static_value(operation.inputs[1])
        rank = operation.inputs[0].shape.rank
        if axes is None or rank is None:
            return Kind.OTHER
        if 0 not in np.atleast_1d(axes) % max(rank, 1):
            return Kind.ROWS
        return {"Sum": Kind.SUM, "L2Loss": Kind.SUM, "Mean": Kind.MEAN}.get(how, Kind.OTHER)

    def _keeps_rows_first(self, operation: Any) -> bool:
        kind, inputs = operation.type, operation.inputs
        if kind == "Transpose":
            order = tf.get_static_value(inputs[1])
            return bool(order is not None and order[0] == 0)
        if kind == "ExpandDims":
            return tf.get_static_value(inputs[1]) not in (0, -inputs[0].shape.rank - 1)
        if kind == "Reshape":
            lead = operation.outputs[0].shape[:1]
            known = lead[0] if lead.rank else 0
            return known is None or bool(self._static_rows and known % self._static_rows == 0)
        return True

    def _divisor(self, tensor: Any, depth: int) -> Kind:
        value = tf.get_static_value(tensor)
        if self._static_rows and value is not None and np.ndim(value) == 0:
            return Kind.COUNT if value == self._static_rows else Kind.SAME
        return self.kind(tensor, depth)

    def _mixes(self, operation: Any, depth: int) -> bool:
        """Whether rows of the outcome are made of several samples."""
        kind, inputs = operation.type, operation.inputs
        if kind == "MatMul":
            first, second = (self.kind(part, depth) is not Kind.SAME for part in inputs)
            return bool(second or (first and operation.get_attr("transpose_a")))
        if kind == "Einsum":
            varying = [self.kind(part, depth) is not Kind.SAME for part in inputs]
            return not _keeps_first_axis(operation, varying)
        if kind in ("Softmax", "LogSoftmax", "TopKV2"):
            return bool(inputs[0].shape.rank == 1)
        if kind in ("Cumsum", "Cumprod", "ReverseV2", "Roll", "GatherV2"):
            axis = inputs[1] if kind in ("Cumsum", "Cumprod", "ReverseV2") else inputs[2]
            return self.kind(inputs[0], depth) is Kind.ROWS and _is_along_rows(axis, inputs[0])
        if kind in ("StridedSlice", "Slice", "Split", "SplitV", "Unpack"):
            part = inputs[1] if kind == "Split" else inputs[0]
            if kind == "Slice" and self.kind(inputs[2], depth) is Kind.COUNT:
                return False  # as many rows as the batch has
            return self.kind(part, depth) is Kind.ROWS and not _takes_all_rows(operation)
        return kind in _MIXING


def _is_first(operation: Any) -> bool:
    begin = tf.get_static_value(operation.inputs[1])
    return begin is None or bool(0 in begin)


def _keeps_first_axis(operation: Any, varying: Sequence[bool]) -> bool:
    """Whether an einsum's batch is the first axis of what goes in and comes out."""
    parts, outcome = operation.get_attr("equation").decode().split("->")
    with_rows = [part for part, varies in zip(parts.split(","), varying, strict=True) if varies]
    return all(part[:1] == outcome[:1] for part in with_rows)


def _is_zero(tensor: Any) -> bool:
    value = tf.get_static_value(tensor)
    return value is not None and np.ndim(value) == 0 and value == 0


def _is_along_rows(axis: Any, tensor: Any) -> bool:
    values = tf.get_static_value(axis)
    if values is None or not tensor.shape.rank:
        return True
    return bool(0 in np.atleast_1d(values) % tensor.shape.rank)


def _takes_all_rows(operation: Any) -> bool:
    """Whether a slice keeps the row of every sample."""
    kind, inputs = operation.type, operation.inputs
    if kind == "Unpack":
        return bool(operation.get_attr("axis") % inputs[0].shape.rank)
    if kind == "Split":
        return not _is_along_rows(inputs[0], inputs[1])
    if kind == "SplitV":
        return not _is_along_rows(inputs[2], inputs[0])
    if kind == "Slice":
        begin, size = (tf.get_static_value(part) for part in inputs[1:])
        return begin is not None and size is not None and begin[0] == 0 and size[0] == -1
    masks = ("begin_mask", "end_mask", "ellipsis_mask")
    begin, end, ellipsis = (operation.get_attr(name) & 1 for name in masks)
    return bool(ellipsis or (begin and end))


def _added(kinds: set[Kind]) -> Kind:
    varying = kinds - {Kind.SAME}
    if not varying:
        return Kind.SAME
    if len(varying) > 1 or (Kind.SAME in kinds and varying & {Kind.SUM, Kind.COUNT}):
        return Kind.OTHER
    return varying.pop()


def _multiplied(one: Kind, other: Kind) -> Kind:
    if Kind.SAME in (one, other):
        return one if other is Kind.SAME else other
    if one is other is Kind.ROWS:
        return Kind.ROWS
    return Kind.SUM if {one, other} == {Kind.MEAN, Kind.COUNT} else Kind.OTHER


def _divided(dividend: Kind, divisor: Kind) -> Kind:
    if divisor is Kind.SAME:
        return dividend
    if dividend is Kind.SUM and divisor is Kind.COUNT:
        return Kind.MEAN
    if divisor is Kind.ROWS and dividend in (Kind.ROWS, Kind.SAME):
        return Kind.ROWS
    return Kind.OTHER


def line_of(tensor: Any) -> str:
    """Where the user's program computes a tensor: `my_model.py:31: loss = tf.sqrt(mse)`."""
    for frame in reversed(tensor.op.traceback):
        if not frame.filename.startswith(_OF_LIBRARIES):
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f"{frame.filename}:{frame.lineno}: {line}"
    return f"the operation {tensor.op.type}"


_OF_LIBRARIES = tuple(
    str(Path(origin).parent)
    for origin in (__file__, keras.__file__, tf.__file__, threading.__file__)
)
