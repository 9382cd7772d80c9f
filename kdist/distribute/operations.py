"""TensorFlow's operations by their effect on the rows of a batch."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .reduction_kinds import Kind

# The result has the kind of the input.
KIND_PRESERVING = {
    *("Identity", "Cast", "StopGradient", "CheckNumerics", "EnsureShape", "PreventGradient"),
    *("Reshape", "Squeeze", "ExpandDims", "Neg", "Transpose", "DeepCopy"),
    *("PlaceholderWithDefault",),
}
ADDITIONS = {"AddV2", "Add", "Sub", "AddN", "BiasAdd"}
DIVISIONS = {"RealDiv", "DivNoNan", "Div"}
ELEMENTWISE = {
    *("Square", "Sqrt", "Rsqrt", "Reciprocal", "Exp", "Expm1", "Log", "Log1p", "Abs", "Sign"),
    *("Sigmoid", "Tanh", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign"),
    *("Pow", "Maximum", "Minimum", "SquaredDifference", "Select", "SelectV2", "Erf", "Floor"),
    *("Round", "Sin", "Cos", "ClipByValue", "Equal", "NotEqual", "Less", "LessEqual"),
    *("Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "MulNoNan", "Xlogy"),
    *("IsFinite", "IsNan", "IsInf"),
}
REDUCTIONS = {"Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss"}
CONSTANTS = {"Const", "ReadVariableOp", "VarHandleOp", "VariableV2"}
# The result depends on the shape of the input alone.
VALUE_INDEPENDENT = {"ZerosLike", "OnesLike"}
# A row of the result may depend on several rows of the input.
MIXES_ROWS = {"Where", "Unique", "UniqueV2", "RandomShuffle", "Bincount", "DenseBincount"}
# The same for a matrix, not for a batch of matrices.
MIXES_ROWS_OF_MATRIX = {"MatrixInverse", "Qr", "Svd"}
# The rows are in another order.
REORDERS_ROWS = {"ReverseV2", "Roll", "RandomShuffle"}


def is_constant_size(operation: Any, static_rows: int | None) -> bool:
    """Whether a constant is what `tf.shape` or `tf.size` returned for rows of a known number."""
    if not static_rows or operation.type != "Const":
        return False
    if not _OF_SIZE.fullmatch(operation.name.rsplit("/", 1)[-1]):
        return False
    value = tf.get_static_value(operation.outputs[0])
    if np.ndim(value):
        return value.size > 0 and bool(value.ravel()[0] == static_rows)
    return bool(value == static_rows or (static_rows > 1 and value % static_rows == 0))


# TensorFlow's names, to which it appends a number.
_OF_SIZE = re.compile(r"(Shape|Size)(_\d+)?")


def slices_first_size(operation: Any) -> bool:
    """Whether a slice of a shape contains the size of the first axis."""
    begin, rank = tf.get_static_value(operation.inputs[1]), operation.inputs[0].shape[0]
    return begin is None or 0 in begin or bool(rank and 0 in begin % rank)


def keeps_first_axis(operation: Any, varying: Sequence[bool]) -> bool:
    """Whether the batch stays the first axis of an einsum's inputs and result."""
    inputs, result = operation.get_attr("equation").decode().split("->")
    with_rows = [part for part, varies in zip(inputs.split(","), varying, strict=True) if varies]
    return all(part[:1] == result[:1] for part in with_rows)


def shares_batch(operation: Any, kinds: Sequence[Kind]) -> bool:
    """Whether the batch, where it is the first axis, is an axis of all that varies in an einsum."""
    inputs = operation.get_attr("equation").decode().split("->")[0].split(",")
    varying = [part for part, kind in zip(inputs, kinds, strict=True) if kind is not Kind.SAME]
    batch = [part[:1] for part, kind in zip(inputs, kinds, strict=True) if kind is Kind.ROWS]
    return all(label in part for label in batch for part in varying)


def is_zero(tensor: Any) -> bool:
    """Whether a tensor is the constant scalar 0."""
    value = tf.get_static_value(tensor)
    return value is not None and np.ndim(value) == 0 and value == 0
