"""TensorFlow's operations by their effect on the rows of a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

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
}
REDUCTIONS = {"Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss"}
CONSTANTS = {"Const", "ReadVariableOp", "VarHandleOp", "VariableV2"}
# A row of the result may depend on several rows of the input.
MIXES_ROWS = {"Where", "Unique", "UniqueV2", "RandomShuffle"}
# The same for a matrix, not for a batch of matrices.
MIXES_ROWS_OF_MATRIX = {"MatrixInverse", "Qr", "Svd"}


def slices_first_size(operation: Any) -> bool:
    """Whether a slice of a shape contains the size of the first axis."""
    begin = tf.get_static_value(operation.inputs[1])
    return begin is None or bool(0 in begin)


def keeps_first_axis(operation: Any, varying: Sequence[bool]) -> bool:
    """Whether the batch stays the first axis of an einsum's inputs and result."""
    inputs, result = operation.get_attr("equation").decode().split("->")
    with_rows = [part for part, varies in zip(inputs.split(","), varying, strict=True) if varies]
    return all(part[:1] == result[:1] for part in with_rows)


def is_zero(tensor: Any) -> bool:
    """Whether a tensor is the constant scalar 0."""
    value = tf.get_static_value(tensor)
    return value is not None and np.ndim(value) == 0 and value == 0


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
        return bool(operation.get_attr("axis") % inputs[0].shape.rank)
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
