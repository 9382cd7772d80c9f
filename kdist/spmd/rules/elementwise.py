"""Operations on corresponding elements, with NumPy's broadcasting.

To add a type of the same kind, add it to `UNARY`, `BROADCASTING` or `SAME_SHAPES`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from ..op_types import types_in
from ..operation import LOCAL, BroadcastRows, Decision, Form, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, ListOf, Partial, Shard
from ..replica_reductions import SUM
from ..sizes import AnySize, AxisSize, as_size, divide_exactly
from ..stage import Stage

UNARY = types_in("""
    Abs Acos Acosh Asin Asinh AsString Atan Atanh BesselI0 BesselI0e BesselI1 BesselI1e
    BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Bucketize Cast
    Ceil CheckNumerics ComplexAbs Angle Conj Cos Cosh Dawsn Digamma Elu Erf Erfc
    Erfinv Exp Expint Expm1 Floor FresnelCos FresnelSin Imag Inv
    Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg
    PopulationCount PreventGradient Real Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid
    Sign Sin Sinh Softplus Softsign Spence Sqrt Square StopGradient StringLength StringLower
    StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
    StringToNumber StringUpper DecodeBase64 EncodeBase64 UnicodeScript UnicodeTranscode
    RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace DebugGradientIdentity
    Tan Tanh Identity OnesLike ZerosLike Snapshot
""")
BROADCASTING = types_in("""
    Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div DivNoNan Equal FloorDiv
    FloorMod Greater GreaterEqual Igamma IgammaGradA Igammac LeftShift Less LessEqual
    LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NextAfter NotEqual Polygamma Pow
    RandomGammaGrad RealDiv RightShift SelectV2 SquaredDifference Sub Substr TruncateDiv
    TruncateMod Xdivy Xlog1py Xlogy Zeta
""")
# All inputs have the same shape; for some types, any input may be a scalar.
SAME_SHAPES = types_in("""
    AddN ApproximateEqual Betainc ClipByValue EluGrad InvGrad
    LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad Select SeluGrad SigmoidGrad
    SoftplusGrad SoftsignGrad SqrtGrad StringJoin TanhGrad
""")


@rule(*UNARY, *BROADCASTING, *SAME_SHAPES)
def elementwise(op: Operation) -> Decision | None:
    """Compute a replica's rows from the same rows of all inputs."""
    if any(isinstance(p, ListOf) for p in op.placements):
        return _divide_lists(op)
    if not op.any_shard:
        return _divide_partials(op) or _divide_scattered(op)
    ranks = [t.shape.rank for t in op.inputs]
    if None in ranks:
        (placement, *_) = op.placements
        if op.type not in UNARY or not isinstance(placement, Shard):
            return None
        return Decision([LOCAL], [placement.as_plain()])
    rank = max(ranks)
    if op.outputs[0].shape.rank != rank:
        return None  # `==` of tensors with incompatible shapes is a single value.
    if op.type == "Select" and ranks[0] not in (0, rank):
        return None  # A vector of TensorFlow 1 chooses between rows.
    at, main = _find_main_shard(op.placements)
    from_end = main.axis - ranks[at]
    forms: list[Form] = []
    uniform = True
    for index, tensor in enumerate(op.inputs):
        axis = ranks[index] + from_end
        placement = op.placements[index]
        if axis < 0 or tensor.shape[axis] == 1:
            forms.append(REPLICATE)
            continue
        want = main.on_axis(axis)
        if index == at or op.try_align(placement, want):
            forms.append(placement)
            uniform = uniform and isinstance(placement, Shard) and placement.uniform
            continue
        uniform = False
        forms.append(want.as_plain() if op.type in SAME_SHAPES else BroadcastRows(want.as_plain()))
    keeps = op.type in ("Identity", "StopGradient") or (
        op.type == "Cast" and {op.inputs[0].dtype, op.outputs[0].dtype} <= {tf.int32, tf.int64}
    )
    keeps = keeps or _is_clipped(op, at) or _selects_rows(op, at, main)
    within = main.within if keeps else None
    out = Shard(rank + from_end, main.rows, uniform, within)
    prefix = "" if op.type in BROADCASTING else "axis "
    labels = [f"{prefix}{axis}" for axis in range(rank)]
    name_axes(op, op.outputs[0], [labels[rank - own :] for own in ranks], labels, out)
    return Decision(forms, [out])


@rule("EnsureShape")
def ensure_shape(op: Operation) -> Decision | None:
    """Check the shape of a replica's rows; their number is checked while the step is planned."""
    shard, shape = op.shard(0), tf.TensorShape(op.attr("shape"))
    if shard is None or shape.rank is None:
        return None
    sizes = shape.as_list()
    if shard.axis >= len(sizes):
        return None  # The operation fails, and says so for the whole batch.
    rows = sizes[shard.axis]
    if rows is not None and not shard.rows.is_total(rows):
        return None
    sizes[shard.axis] = None
    labels = [f"axis {axis}" for axis in range(len(sizes))]
    if op.rank(0) is not None:
        name_axes(op, op.outputs[0], [labels], labels, shard)
    return Decision([LOCAL], [shard], lambda stage, op, inputs: [tf.ensure_shape(inputs[0], sizes)])


def _is_clipped(op: Operation, at: int) -> bool:
    """Whether negative numbers become 0, as in gradients of segments: indices do not change."""
    return op.type == "Maximum" and op.inputs[1 - at].op.type == "ZerosLike"


def _selects_rows(op: Operation, at: int, main: Shard) -> bool:
    """Whether an operation is `where(count > 1, rows, 0)`, as `tf.vectorized_map` makes.

    If the count is 1, row 0 is the only row.
    """
    otherwise = op.constant(2) if op.type == "SelectV2" and at == 1 else None
    test = op.inputs[0].op
    if otherwise is None or otherwise.any() or main.within is None or test.type != "Greater":
        return False
    count, least = (op.facts.sizes_in(tensor) for tensor in test.inputs)
    is_one = least is not None and least.size == 1 and least.item() == 1
    return is_one and count is not None and main.within.is_total(count.item())


def _find_main_shard(placements: Sequence[Any]) -> tuple[int, Shard]:
    """Return a divided input's index and division; if possible, of rows that are not all equal."""
    shards = [(index, p) for index, p in enumerate(placements) if isinstance(p, Shard)]
    return next((pair for pair in shards if not pair[1].uniform), shards[0])


def name_axes(
    op: Operation,
    output: tf.Tensor,
    parts: Sequence[Sequence[str]],
    out: Sequence[str],
    shard: Shard | None,
) -> None:
    """Set unknown sizes of a result from the inputs' axes with the same labels.

    `parts` are the labels of the inputs' axes; if a label has only digits, its axes of size 1 are
    broadcast. `out` are the labels of the result's axes, `shard` its placement, if it is divided.
    """
    rows_axis = -1 if shard is None else shard.axis
    shape, dims = output.shape, [op.dims(index) for index in range(len(parts))]
    if shape.rank != len(out) or None in dims:
        return
    if all(size is not None or axis == rows_axis for axis, size in enumerate(shape)):
        return
    sizes: list[AnySize] = []
    for axis, (label, size) in enumerate(zip(out, shape.as_list(), strict=True)):
        found = [
            own[part.index(label)]
            for part, own in zip(parts, dims, strict=True)
            if own is not None and label in part
        ]
        if label.isdigit():
            found = [size for size in found if size != 1]
        known = [size for size in (size, *found) if isinstance(size, int)]
        # Of two sizes that are not known to be equal, either may be 1, and broadcast.
        is_certain = not label.isdigit() or found == found[:1] * len(found)
        certain = [*known, *(found if is_certain else ())]
        sizes.append(certain[0] if certain else as_size(AxisSize(output, axis)))
    if shard is not None:
        sizes[rows_axis] = shard.rows.total
    op.set_dims(output, sizes)


def _divide_lists(op: Operation) -> Decision | None:
    if op.type == "Identity":
        return Decision([LOCAL], [op.placements[0]])
    lists = [p for p in op.placements if isinstance(p, ListOf)]
    if op.type == "ZerosLike":
        return Decision([LOCAL], [ListOf(lists[0].element, lists[0].origin)])
    if op.type != "AddN" or len(lists) < len(op.inputs):
        return None
    known = [p for p in lists if p.element is not None]
    if any(p.element != known[0].element for p in known):
        return None
    first = known[0] if known else lists[0]
    return Decision([LOCAL] * len(op.inputs), [ListOf(first.element, first.origin)])


def _divide_partials(op: Operation) -> Decision | None:
    """Keep sums partial in linear operations, where this saves a collective."""
    partial = [isinstance(p, Partial) for p in op.placements]
    if not any(partial):
        return None
    if op.type in ("ZerosLike", "OnesLike") and all(t.shape.is_fully_defined() for t in op.inputs):
        return Decision([LOCAL], [REPLICATE], _write_filled)
    if op.type in ("Identity", "StopGradient", "PreventGradient", "Snapshot"):
        return Decision([LOCAL], [op.placements[0]], reduces_input=True)
    if any(isinstance(p, Partial) and p.reduction != SUM for p in op.placements):
        return None
    if op.type == "Neg":
        return Decision([PARTIAL], [PARTIAL])
    dtype, result = op.inputs[0].dtype, op.outputs[0].dtype
    # A sum that overflows, or wraps, may not do so in a different type. The range of bfloat16 is
    # about the range of float32.
    if op.type == "Cast":
        exact = dtype == tf.bfloat16 and result in (tf.float32, tf.float64)
        return Decision([PARTIAL], [PARTIAL]) if exact else None
    if dtype == tf.float16:
        return None  # Sums of float16 may overflow.
    if not (dtype.is_floating or dtype.is_integer) and op.type != "SelectV2":
        return None
    if not op.in_body and sum(partial) < 2:
        return None  # A partial result would save nothing, and its readers would wait for a sum.
    if op.type in ("Add", "AddV2", "Sub", "AddN"):
        return Decision([PARTIAL] * len(partial), [PARTIAL])
    size = op.outputs[0].shape.num_elements()
    sizes = [t.shape.num_elements() for t in op.inputs]
    if size is None or any(p and s != size for p, s in zip(partial, sizes, strict=True)):
        return None  # The result is larger than the partial input.
    if op.type in ("Mul", "MulNoNan") and sum(partial) == 1:
        return Decision([PARTIAL if p else REPLICATE for p in partial], [PARTIAL])
    is_safe = op.type != "RealDiv" or np.all(tensor_util.constant_value(op.inputs[1]))
    if not is_safe and not _is_mean(op):
        return None  # The quotient may be 0 / 0 on a single replica.
    if op.type in ("RealDiv", "DivNoNan") and partial == [True, False] and dtype.is_floating:
        return Decision([PARTIAL, REPLICATE], [PARTIAL])
    if op.type == "SelectV2" and not partial[0]:
        return Decision([REPLICATE, PARTIAL, PARTIAL], [PARTIAL])
    return None


def _is_mean(op: Operation) -> bool:
    """Whether a sum is divided by a factor of the number of its values.

    If the factor is 0, the sum is 0, too: the quotient is 0 / 0 on every replica.
    """
    total, divisor = op.inputs
    if total.op.type != "Sum" or divisor.op.type != "Cast":
        return False
    values, axes, count = (
        op.facts.resolve_alias(t) for t in (*total.op.inputs, divisor.op.inputs[0])
    )
    summed, dims, size = (
        op.facts.constant_of(axes),
        op.facts.dims_of(values),
        op.facts.sizes_in(count),
    )
    is_divided = isinstance(op.facts.placement_of(values), Shard)
    if not is_divided or summed is None or dims is None or size is None or size.ndim:
        return False
    return (
        divide_exactly(math.prod(dims[axis] for axis in np.ravel(summed)), size.item()) is not None
    )


def _divide_scattered(op: Operation) -> Decision | None:
    """Compute with the replica's rows of a sum, if a variable of this shape is divided.

    For gradients this is enough: a gradient changes a variable of its own shape.
    """
    summed = [t for t, p in zip(op.inputs, op.placements, strict=True) if p == PARTIAL]
    shard = op.facts.variable_shard(summed[0]) if summed else None
    if shard is None or any(isinstance(p, Partial) and p.reduction != SUM for p in op.placements):
        return None
    shapes, whole = [*map(op.facts.shape_of, op.inputs)], op.facts.shape_of(summed[0])
    if any(shape.rank is None or (shape.rank and shape != whole) for shape in shapes):
        return None
    op.set_dims(op.outputs[0], whole.as_list())
    forms = [BroadcastRows(shard) if shape.rank else REPLICATE for shape in shapes]
    return Decision(forms, [shard])


def _write_filled(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
    make = tf.ones if op.type == "OnesLike" else tf.zeros
    return [make(op.outputs[0].shape, op.outputs[0].dtype)]


@rule("Bitcast")
def bitcast(op: Operation) -> Decision | None:
    """Reinterpret numbers of the same width, as `keras.ops.argmax` does to find -0.0."""
    shard = op.shard(0)
    if shard is None or op.inputs[0].dtype.size != op.outputs[0].dtype.size:
        return None
    return Decision([LOCAL], [shard.as_plain()])


@rule("IdentityN")
def pass_on(op: Operation) -> Decision | None:
    """Pass each input on unchanged, as an alias: a gradient need not wait for further gradients."""
    for output, tensor in zip(op.outputs, op.inputs, strict=True):
        op.facts.set_alias(output, tensor)
    return Decision([LOCAL] * len(op.inputs), op.placements, lambda stage, op, inputs: inputs)
