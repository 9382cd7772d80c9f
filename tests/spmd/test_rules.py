"""Every sharding rule, against the whole computation."""

import functools
import os

import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.rules import RULES
from rule_harness import (
    COUNTS,
    STATIC,
    B,
    Input,
    Program,
    Row,
    bools,
    check,
    check_divided,
    ints,
    partial,
    raw,
    twin,
    types_of,
)

pytestmark = [
    pytest.mark.usefixtures("without_graph_optimizer_in_module"),
    # Not finished: some rules have no row yet, and all rows take half an hour.
    pytest.mark.skipif("KDIST_TEST_RULES" not in os.environ, reason="set KDIST_TEST_RULES=1"),
]


def positive(x):
    """Return values from 0.5 on."""
    return tf.abs(x) + 0.5


def unit(x):
    """Return values between -1 and 1."""
    return 0.9 * tf.tanh(x)


def half(x):
    """Return values between 0 and 1."""
    return 0.5 + 0.45 * tf.tanh(x)


def of(domain, kind, **attributes):
    """Return a function that makes an operation of inputs in a domain."""
    make = raw(kind, **attributes)
    return lambda *inputs: make(*map(domain, inputs))


def as_complex(x):
    """Return complex values."""
    return tf.complex(x, x * 0.5 + 1)


def with_constants(kind, *rest, **attributes):
    """Return a function that makes an operation of one input, and constants behind it."""
    make = raw(kind, **attributes)
    return lambda x: make(x, *map(tf.convert_to_tensor, rest))


def on(data, kind, *rest, **attributes):
    """Return the same for an operation with several inputs."""
    make = raw(kind, **attributes)

    def call(*inputs):
        assert len(inputs) == data
        return make(*inputs, *map(tf.convert_to_tensor, rest))

    return call


# Along the only axis, an operation that is not on elements would be found out whatever its axis.
ALONG = [[(B,)]]
PAIRS = [[(B,), (B,)], [(B, 3), (3,)]]
ONE = [[(B, 3)], [(2, B)]]
TWO = [
    [(B, 3), (B, 3)],
    [(2, B), (2, B)],
    [(B, 3), (3,)],
    [(3,), (B, 3)],
    [(B, 3), (B, 1)],
    [(4, 1, 3), (B, 3)],
    [(2, B), (B,)],
    [(B, 3), ()],
    [(B, 3), (1, 3)],
]
ALIKE = [[(B, 3), (B, 3)], [(2, B), (2, B)], [(B, 3), twin(B, 3)]]


def elementwise():
    """Return rows of operations on corresponding elements."""
    rows = []
    quick = {"batches": False, "replicated": False, "static": False}
    rows.append(
        Row(
            "Tanh Neg Cast Identity StopGradient",
            lambda x: (tf.tanh(x), -x, tf.cast(x, "float32"), tf.identity(tf.stop_gradient(x))),
            [*ONE, [(2, B, 3)]],
        )
    )
    for kind in ("AddV2", "Mul", "Maximum"):
        rows.append(Row(kind, raw(kind), TWO))

    def one(kinds, domain=lambda x: x, inputs=ALONG, **attributes):
        rows.extend(
            Row(kind, of(domain, kind, **attributes), inputs, **quick) for kind in kinds.split()
        )

    one("Abs Asinh Atan BesselI0e BesselI1e Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Identity")
    one("BesselI0 BesselI1 Dawsn FresnelCos FresnelSin IsFinite IsInf IsNan LeakyRelu Neg Relu")
    one("OnesLike ZerosLike PreventGradient Relu6 Rint Round Selu Sigmoid Sign Sin Sinh Softplus")
    one("Softsign Spence Square StopGradient Tan Tanh Snapshot DebugGradientIdentity")
    one("Log Log1p Lgamma Digamma Rsqrt Sqrt Reciprocal Inv Expint BesselJ0 BesselJ1", positive)
    one("BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1", positive)
    one("Acosh", lambda x: positive(x) + 1)
    one("Acos Asin Atanh Erfinv", unit)
    one("Ndtri", half)
    one("Cast", DstT="float32")
    one("Bucketize", boundaries=[-0.5, 0.0, 0.7])
    one("CheckNumerics", message="not finite")
    one("EnsureShape", inputs=[[(B, 3)]], shape=[None, 3])
    one("AsString", lambda x: tf.cast(x * 100, "int32"))
    one("Angle Conj Imag Real", as_complex)
    rows[-4:] = [
        Row("Angle", of(as_complex, "Angle", Tout=tf.float64), ALONG, **quick),
        Row("Conj", of(as_complex, "Conj"), ALONG, **quick),
        Row("Imag", of(as_complex, "Imag", Tout=tf.float64), ALONG, **quick),
        Row("Real", of(as_complex, "Real", Tout=tf.float64), ALONG, **quick),
        Row("ComplexAbs", of(as_complex, "ComplexAbs", Tout=tf.float64), ALONG, **quick),
    ]
    one("Invert PopulationCount", inputs=[[ints(B)]])
    one("LogicalNot", inputs=[[bools(B)]])
    strings = functools.partial(one, domain=tf.as_string)
    strings("StringLength StringLower StringStrip StringUpper")
    strings("StringToHashBucket StringToHashBucketFast", num_buckets=7)
    strings("StringToHashBucketStrong", num_buckets=7, key=[1, 2])
    strings("StringToNumber", out_type="float64")
    strings("StaticRegexFullMatch", pattern="-.*")
    strings("StaticRegexReplace", pattern="1", rewrite="one")
    for kind, rest in (("RegexFullMatch", ["-.*"]), ("RegexReplace", ["1", "one"])):
        make = with_constants(kind, *rest)
        rows.append(Row(kind, lambda x, make=make: make(tf.as_string(x)), ALONG, **quick))
    rows.append(
        Row(
            "QuantizeAndDequantizeV2",
            with_constants(
                "QuantizeAndDequantizeV2", np.float64(-2), np.float64(2), range_given=True
            ),
            ONE,
        )
    )
    rows.append(
        Row(
            "QuantizeAndDequantizeV2",
            with_constants("QuantizeAndDequantizeV2", np.float64(0), np.float64(0)),
            ONE,
            divided=False,
            empty=False,
        )
    )

    def two(kinds, domain=lambda x: x, inputs=PAIRS, **attributes):
        rows.extend(
            Row(kind, of(domain, kind, **attributes), inputs, **quick) for kind in kinds.split()
        )

    two("Add AddV2 Atan2 Equal Greater GreaterEqual Less LessEqual Maximum Minimum Mul MulNoNan")
    two("NotEqual SquaredDifference Sub")
    two("Div DivNoNan RealDiv FloorDiv FloorMod Pow Xdivy Xlogy Xlog1py", positive)
    two("Igamma Igammac IgammaGradA", positive)
    two("RandomGammaGrad", positive)
    two("Zeta", lambda x: positive(x) + 1)
    two("NextAfter")
    two("Complex", Tout="complex128")
    rows.append(
        Row(
            "Betainc",
            lambda a, b, x: tf.math.betainc(positive(a), positive(b), half(x)),
            [[(B, 3), (B, 3), (B, 3)], [(), (), (2, B)]],
            static=False,
        )
    )
    two("ApproximateEqual", inputs=ALIKE, tolerance=0.3)
    rows.append(
        Row(
            "Polygamma",
            lambda a, x: tf.raw_ops.Polygamma(a=tf.round(positive(a)), x=positive(x)),
            TWO,
        )
    )
    whole_numbers = [
        [Input(i if isinstance(i, tuple) else i.shape, "int32") for i in t] for t in TWO
    ]
    two("BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift", inputs=whole_numbers)
    two("Mod TruncateMod TruncateDiv", lambda x: x + 1, inputs=whole_numbers)
    truths = [[Input(i if isinstance(i, tuple) else i.shape, "bool") for i in t] for t in PAIRS]
    two("LogicalAnd LogicalOr", inputs=truths)
    two(
        "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad",
        inputs=ALIKE,
    )
    two("SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad", inputs=PAIRS[:1])
    rows.append(Row("AddN", lambda *x: tf.raw_ops.AddN(inputs=list(x)), ALIKE))
    rows.append(
        Row(
            "ClipByValue",
            raw("ClipByValue"),
            [[(B, 3), (), ()], [(B, 3), (B, 3), (B, 3)], [(2, B), (2, B), (2, B)]],
        )
    )
    rows.append(
        Row(
            "SelectV2",
            raw("SelectV2"),
            [
                [bools(B, 1), (B, 3), (3,)],
                [bools(B, 3), (), (B, 3)],
                [bools(), (B, 3), (B, 3)],
                [bools(2, B), (B,), (2, 1)],
                [bools(3), (B, 3), (B, 1)],
            ],
        )
    )
    rows.append(
        Row(
            "Select",
            raw("Select"),
            [
                [bools(B), (B, 3), (B, 3)],
                [bools(B, 3), (B, 3), twin(B, 3)],
                [bools(2, B), (2, B), (2, B)],
                [bools(), (B, 3), (B, 3)],
            ],
        )
    )
    rows.append(Row("Bitcast", with_constants("Bitcast", type="int64"), ONE))
    rows.append(Row("Bitcast", with_constants("Bitcast", type="int32"), ONE, divided=False))
    rows.append(Row("IdentityN", lambda *x: tf.raw_ops.IdentityN(input=list(x)), TWO[:3]))
    rows.append(
        Row(
            "AddV2 BroadcastGradientArgs Sum",
            lambda a, b: (a + 2) * b,
            [*TWO, [(B, 1), (B, 3)], [(B, 1, 3), (4, 1)], [(1, B), (2, 1)]],
            mixed=False,
            gradients=True,
        )
    )

    def with_own_dims(a, b):
        return a[: tf.shape(a)[0], : tf.shape(b)[-1]] * b

    rows.append(
        Row(
            "AddV2 BroadcastGradientArgs",
            lambda a, b: with_own_dims(a, b) + b,
            TWO[:1],
            divided=False,
            gradients=True,
        )
    )
    rows.append(
        Row("Select Where", lambda x: tf.where(x > 0, x, tf.zeros_like(x)), ONE, gradients=True)
    )
    rows[-1].types = "SelectV2"
    return rows


def partials():
    """Return rows of linear operations on sums that are not reduced yet."""
    p, c = partial(2, 3), (2, 3)
    options = {"batches": False}
    return [
        Row("Identity", lambda x: tf.identity(x) + 1, [[p]], divided=False, **options),
        Row(
            "StopGradient PreventGradient Snapshot ZerosLike OnesLike Neg",
            lambda x: [
                raw(kind)(x)
                for kind in [
                    "StopGradient",
                    "PreventGradient",
                    "Snapshot",
                    "ZerosLike",
                    "OnesLike",
                    "Neg",
                ]
            ],
            [[p]],
            **options,
        ),
        Row(
            "Cast",
            with_constants("Cast", DstT="float64"),
            [[partial(2, dtype="float32")]],
            divided=False,
            tolerance=1e-5,
            **options,
        ),
        Row(
            "Cast", with_constants("Cast", DstT="float64"), [[partial(2, dtype="int32")]], **options
        ),
        Row(
            "AddV2 Sub AddN",
            lambda x, y: (x + y, x - y, tf.add_n([x, y])),
            [[p, p], [p, partial(2, 1)]][:1],
            **options,
        ),
        Row(
            "AddV2 Sub",
            lambda x, y: (x + y, x - y),
            [[p, partial(3)], [p, partial(2, 1)], [partial(), p]],
            **options,
        ),
        Row("AddN", lambda x, y, z: tf.add_n([x, y, z]), [[p, c, p], [c, p, p]], **options),
        Row(
            "Mul RealDiv Maximum",
            lambda x, y: (x * y, x / y, tf.maximum(x, y)),
            [[p, p], [p, c], [c, p], [p, (3,)]],
            divided=False,
            **options,
        ),
        Row("SelectV2", lambda c, x, y: tf.where(c > 0, x, y), [[c, p, p]], **options),
        Row(
            "SelectV2",
            lambda c, x, y: tf.where(c > 0, x, y),
            [[(2, 1), p, partial(3)], [p, p, c]],
            divided=False,
            **options,
        ),
        Row(
            "Reshape ExpandDims Squeeze Transpose",
            lambda x: (
                tf.reshape(x, [3, 2]),
                tf.reshape(x, [-1]),
                x[None],
                tf.squeeze(tf.expand_dims(x, 1), 1),
                tf.transpose(x),
            ),
            [[p]],
            **options,
        ),
        Row(
            "Sum Mean",
            lambda x: (tf.reduce_sum(x, 1), tf.reduce_mean(x), tf.reduce_mean(x, 0, keepdims=True)),
            [[p]],
            **options,
        ),
        Row(
            "Max Prod",
            lambda x: (tf.reduce_max(x, 1), tf.reduce_prod(x)),
            [[p]],
            divided=False,
            **options,
        ),
        Row(
            "StridedSlice Slice Split Unpack",
            lambda x: (
                x[:, 1:],
                x[0],
                tf.slice(x, [0, 1], [2, 1]),
                tf.split(x, 3, 1),
                tf.split(x, [1, 2], 1),
                tf.unstack(x, axis=1),
            ),
            [[p]],
            **options,
        ),
        Row(
            "Pack ConcatV2",
            lambda x, y: (tf.stack([x, y], 1), tf.concat([x, y], 1)),
            [[p, p], [p, c], [c, p]],
            **options,
        ),
        Row(
            "Shape Size Rank",
            lambda x: (
                tf.raw_ops.Shape(input=x),
                tf.raw_ops.Size(input=x),
                tf.raw_ops.Rank(input=x),
            ),
            [[p]],
            **options,
        ),
        Row(
            "Pad Tile Cumsum",
            lambda x: (tf.pad(x, [[0, 1], [0, 0]]), tf.tile(x, [1, 2]), tf.cumsum(x)),
            [[p]],
            divided=False,
            **options,
        ),
    ]


def reductions():
    """Return rows of reductions."""
    rows = []
    shapes = [[(B, 3)], [(2, B)], [(2, B, 3)], [(B,)]]

    def all_axes(kind, keep):
        def make(x):
            rank = len(x.shape)
            axes = [[], list(range(rank)), *([a] for a in range(rank)), [-1], [0, rank - 1]]
            return [
                raw(kind, keep_dims=keep)(
                    x, list(dict.fromkeys(a % rank for a in one)) if one else tf.zeros([0], "int32")
                )
                for one in axes
            ]

        return make

    for kind in ("Sum", "Mean", "Max", "Min", "Prod"):
        for keep in (False, True):
            rows.append(Row(kind, all_axes(kind, keep), shapes))
    for kind in ("All", "Any"):
        rows.append(
            Row(
                kind,
                all_axes(kind, True),
                [[bools(*s.shape)] for [s] in Row("", None, shapes).inputs],
            )
        )
    for kind in ("Sum", "Max", "Min", "Prod"):
        rows.append(Row(kind, all_axes(kind, False), [[ints(B, 3)], [ints(2, B)]]))
    rows.append(Row("Mean", lambda x: tf.reduce_mean(x, [1]), [[ints(B, 3)]]))
    rows.append(
        Row("Mean", lambda x: tf.reduce_mean(x), [[ints(B, 3)]], divided=False, empty=False)
    )
    rows.append(
        Row(
            "Mean",
            lambda x: tf.reduce_mean(tf.cast(x, "float16") * 3e4 + 3e4),
            [[ints(B, 200)]],
            empty=False,
        )
    )
    rows[-1].tolerance = 1e-3
    rows.append(
        Row(
            "Sum Mean",
            lambda x: (tf.reduce_sum(as_complex(x), 0), tf.reduce_mean(as_complex(x), 1)),
            [[(B, 3)]],
        )
    )
    rows.append(
        Row(
            "Mean Sum",
            lambda x: (tf.reduce_mean(x), tf.reduce_sum(x, 0), tf.reduce_mean(x, 1)),
            shapes[:3],
            gradients=True,
        )
    )
    moments = [([0], [(B, 3)]), ([0, 1], [(B, 2, 3)]), ([1], [(2, B)]), ([0, 2], [(B, 2, 3)])]
    for axes, inputs in moments:
        for keep in (False, True):
            rows.append(
                Row(
                    "Mean SquaredDifference",
                    lambda x, axes=axes, keep=keep: tf.nn.moments(x, axes, keepdims=keep),
                    [inputs],
                    gradients=True,
                )
            )
    rows.append(Row("L2Loss", raw("L2Loss"), [[(B, 3)], [(2, B)]], gradients=True))
    for kind in ("ArgMax", "ArgMin"):
        rows.append(
            Row(
                kind,
                lambda x, kind=kind: [raw(kind)(x, 1), raw(kind)(x, -1)],
                [[(B, 3)], [(B, 2, 3)]],
            )
        )
        rows.append(Row(kind, lambda x, kind=kind: raw(kind)(x, 0), [[(2, B)], [(2, 3, B)]]))
        rows.append(
            Row(kind, lambda x, kind=kind: raw(kind)(x, 0), [[(B, 3)]], divided=False, empty=False)
        )
    for kind in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        rows.append(
            Row(
                kind,
                lambda x, kind=kind: [
                    raw(kind)(x, 1),
                    raw(kind, exclusive=True, reverse=True)(x, -1),
                ],
                [[(B, 3)], [(B, 3, 2)]],
            )
        )
        rows.append(Row(kind, lambda x, kind=kind: raw(kind)(x, 0), [[(2, B)]]))
        rows.append(Row(kind, lambda x, kind=kind: raw(kind)(x, 0), [[(B, 3)]], divided=False))
    rows.append(
        Row("ReverseV2", lambda x: [tf.reverse(x, [-1]), tf.reverse(x, [1, 2])], [[(B, 2, 3)]])
    )
    rows.append(Row("ReverseV2", lambda x: tf.reverse(x, [0]), [[(2, B)]]))
    rows.append(Row("ReverseV2", lambda x: tf.reverse(x, [0, 1]), [[(B, 2)]], divided=False))
    return rows


def contractions():
    """Return rows of products."""
    rows = []

    def product(kind, inputs, names, gradients=False, **options):
        rows.append(Row(kind, raw(kind, **names), inputs, gradients=gradients, **options))

    for a in (False, True):
        for b in (False, True):
            left, right = (2, 3), (3, 4)
            names = {"transpose_a": a, "transpose_b": b}
            turn = lambda s, t: s[::-1] if t else s  # noqa: E731
            inputs = [
                [turn((B, 3), a), turn(right, b)],
                [turn((2, B), a), turn((B, 4), b)],
                [turn(left, a), turn((3, B), b)],
            ]
            product("MatMul", inputs, names)
            names = {"adj_x": a, "adj_y": b}
            batch = [
                [(B, *turn(left, a)), (B, *turn(right, b))],
                [(B, *turn(left, a)), turn(right, b)],
                [(B, *turn(left, a)), (1, *turn(right, b))],
                [(1, *turn(left, a)), (B, *turn(right, b))],
                [turn(left, a), (B, *turn(right, b))],
                [(5, *turn((B, 3), a)), (5, *turn(right, b))],
                [(5, *turn((2, B), a)), (5, *turn((B, 4), b))],
                [turn((2, B), a), (5, *turn((B, 4), b))],
                [(B, 5, *turn(left, a)), (5, *turn(right, b))],
                [(5, B, *turn(left, a)), (B, *turn(right, b))],
            ]
            product("BatchMatMulV2", batch, names)
    product("BatchMatMulV3", batch, {"adj_x": True, "adj_y": True, "Tout": "float64"})
    rows.append(
        Row(
            "MatMul",
            lambda x, w: tf.matmul(tf.sin(x), w),
            [[(B, 3), (3, 4)], [(2, B), (B, 4)]],
            gradients=True,
        )
    )
    rows.append(
        Row(
            "BatchMatMulV2",
            lambda x, w: tf.matmul(tf.sin(x), w),
            [[(B, 2, 3), (B, 3, 4)], [(B, 2, 3), (3, 4)], [(B, 2, 3), (1, 3, 4)]],
            mixed=False,
            gradients=True,
        )
    )
    rows.append(
        Row(
            "MatMul",
            lambda x, y: tf.matmul(x, y, transpose_b=True),
            [[(B, 3), (B, 3)]],
            divided=False,
            batches=False,
        )
    )
    equations = {
        "ab,bc->ac": [[(B, 3), (3, 4)], [(2, B), (B, 4)], [(2, 3), (3, B)]],
        "abc,acd->abd": [[(B, 2, 3), (B, 3, 4)], [(5, B, 3), (5, 3, 4)], [(5, 2, B), (5, B, 4)]],
        "bi,bj->ij": [[(B, 2), (B, 3)]],
        "bi,j->bj": [[(B, 2), (3,)], [(4, 2), (B,)]],
        "bi,j->j": [[(B, 2), (3,)]],
        "bij->bji": [[(B, 2, 3)], [(2, B, 3)]],
        "bi->b": [[(B, 2)], [(2, B)]],
        "bqhd,bkhd->bhqk": [[(B, 2, 2, 3), (B, 4, 2, 3)]],
    }
    for equation, inputs in equations.items():
        rows.append(
            Row(
                "Einsum",
                lambda *x, e=equation: tf.raw_ops.Einsum(inputs=list(x), equation=e),
                inputs,
                gradients=True,
            )
        )
    rows.append(
        Row(
            "Einsum",
            lambda x, w: tf.einsum("...i,ij->...j", x, w),
            [[(B, 3), (3, 4)]],
            divided=False,
        )
    )
    return rows


def shapes():
    """Return rows of operations that change shapes, or make tensors of a shape."""
    count = lambda x: tf.shape(x)[0]  # noqa: E731
    rows = []

    def add(types, fn, *inputs, **options):
        rows.append(Row(types, fn, list(inputs), **options))

    add(
        "Shape ShapeN Size Rank",
        lambda x: [
            tf.shape(x),
            tf.shape(x, "int64"),
            tf.size(x),
            tf.raw_ops.Rank(input=x),
            *tf.shape_n([x, x + 1]),
            tf.cast(tf.shape(x)[0], x.dtype) * 2,
        ],
        [(B, 3)],
        [(2, B, 3)],
    )
    add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [-1, 12]),
            tf.reshape(x, [-1, 3]),
            tf.reshape(x, [-1]),
            tf.reshape(x, [-1, 2, 3, 2]),
            tf.reshape(x, [count(x), -1]),
            tf.reshape(x, [count(x) * 3, 4]),
            tf.reshape(x, [count(x), 2, 6]),
            tf.reshape(x, [1, -1, 3, 4]),
            tf.reshape(x, [1, count(x), 1, 12]),
            tf.reshape(x, [-1, 4, 1]),
            tf.reshape(tf.reshape(x, [-1, 2]), [-1, 3, 4]),
        ],
        [(B, 3, 4)],
        gradients=True,
    )
    add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [2, -1, 12]),
            tf.reshape(x, [2, tf.shape(x)[1], 12]),
            tf.reshape(x, [1, 2, -1, 3, 4]),
        ],
        [(2, B, 3, 4)],
        gradients=True,
    )
    add(
        "Reshape",
        lambda x: [
            tf.reshape(x, [-1, 3]),
            tf.reshape(x, [-1]),
            tf.reshape(tf.reshape(x, [-1, 3]), [2, -1, 3]),
        ],
        [(2, B, 3)],
        gradients=True,
    )
    add("Reshape", lambda x: tf.reshape(x, [4, -1]), [(B, 4)], divided=False, empty=False)
    add(
        "ExpandDims",
        lambda x: [x[..., None], *(tf.expand_dims(x, a) for a in (0, 1, 2, -1, -2))],
        [(B, 3)],
        [(2, B)],
        gradients=True,
    )
    add(
        "Squeeze",
        lambda x: [tf.squeeze(x, 1), tf.squeeze(x, [-1]), tf.squeeze(x, [1, 3])],
        [(B, 1, 3, 1)],
    )
    add("Squeeze", lambda x: [tf.squeeze(x, 0), tf.squeeze(x, [0, 2])], [(1, B, 1)])
    add(
        "Transpose",
        lambda x: [
            tf.transpose(x),
            tf.transpose(x, [0, 2, 1]),
            tf.transpose(x, [1, 0, 2]),
            tf.transpose(x, [2, 0, 1]),
        ],
        [(B, 2, 3)],
        [(2, B, 3)],
        [(2, 3, B)],
        gradients=True,
    )
    add(
        "Fill",
        lambda x: [
            tf.fill([count(x)], 2.0),
            tf.fill([3, count(x)], 2),
            tf.fill([count(x) * 2, 3], x[0, 0] * 0 + 1)
            if False
            else tf.fill([count(x) * 2, 3], 1.5),
        ],
        [(B, 3)],
    )
    add(
        "Fill AddV2",
        lambda x: [
            x + tf.fill(tf.shape(x), tf.constant(2.0, x.dtype)),
            tf.zeros(tf.shape(x)),
            tf.ones_like(x) * x,
            tf.zeros([count(x), 2]),
        ],
        [(B, 3)],
    )
    add(
        "BroadcastTo",
        lambda x: [
            tf.broadcast_to(x[:, None], [count(x), 4, 3]),
            tf.broadcast_to(x, [2, count(x), 3]),
            tf.broadcast_to(x, tf.shape(x)),
        ],
        [(B, 3)],
        gradients=True,
    )
    add(
        "BroadcastTo",
        lambda x, w: [
            tf.broadcast_to(w, [count(x), 4, 3]),
            tf.broadcast_to(w[0], [count(x), 3]) + x,
            tf.broadcast_to(w[:, :1], [2, 4, count(x)]),
        ],
        [(B, 3), (4, 3)],
        gradients=True,
    )
    add(
        "Tile",
        lambda x: [
            tf.tile(x, [1, 2]),
            tf.tile(x, [3, 1]),
            tf.tile(x, [2, 2]),
            tf.tile(x[None], [4, 1, 1]),
        ],
        [(B, 3)],
        gradients=True,
    )
    add(
        "Tile",
        lambda x, w: [
            tf.tile(w[None], [count(x), 1, 1]),
            tf.tile(w[:, None], [1, count(x), 2]),
            tf.tile(w[:1], [count(x), 1])[:, :3] * x,
        ],
        [(B, 3), (4, 3)],
        gradients=True,
    )
    add(
        "Tile",
        lambda x, w: [tf.tile(w, [count(x), 1]), tf.tile(w[None], [count(x), 1, 2])],
        [(B, 3), (4, 3)],
        static=False,
    )
    add(
        "Pad PadV2 MirrorPad",
        lambda x: [
            tf.pad(x, [[0, 0], [1, 2]]),
            tf.pad(x, [[0, 0], [1, 2]], constant_values=2),
            tf.pad(x, [[0, 0], [1, 2]], "REFLECT"),
            tf.pad(x, [[0, 0], [1, 2]], "SYMMETRIC"),
        ],
        [(B, 3)],
        empty=False,
    )
    add(
        "MirrorPad MirrorPadGrad",
        lambda x: [
            tf.pad(x, [[0, 0], [1, 2]], "REFLECT"),
            tf.pad(x, [[0, 0], [2, 1]], "SYMMETRIC"),
        ],
        [(B, 3)],
        empty=False,
        gradients=True,
    )
    add("Pad", lambda x: tf.pad(x, [[1, 2], [0, 0]]), [(2, B)], gradients=True)
    add("Pad", lambda x: tf.pad(x, [[1, 2], [0, 0]]), [(B, 2)], divided=False, gradients=True)
    add(
        "ConcatV2",
        lambda x, y: [tf.concat([x, y], 1), tf.concat([x, y, x], -1)],
        [(B, 3), (B, 2)],
        [(B, 3), twin(B, 2)],
        gradients=True,
        mixed=False,
    )
    add(
        "ConcatV2", lambda x, y: tf.concat([x, y], 0), [(3, B), (2, B)], gradients=True, mixed=False
    )
    add(
        "ConcatV2",
        lambda x, y: [tf.concat([x, y], 0), tf.concat([x, y, x], 0) * 2],
        [(B, 3), (B, 3)],
        mixed=False,
        gradients=True,
    )
    add(
        "ConcatV2",
        lambda x, y: tf.concat([x, y], 0),
        [(B, 3), (2, 3)],
        divided=False,
        gradients=True,
    )
    add(
        "ConcatV2 Fill",
        lambda x: [
            tf.concat([tf.ones([count(x), 1], x.dtype), x], 1),
            tf.concat([tf.ones([count(x), 1]), tf.zeros([count(x), 1])], 0),
        ],
        [(B, 3)],
    )
    add(
        "Pack",
        lambda x, y: [tf.stack([x, y], a) for a in (0, 1, 2, -1)],
        [(B, 3), (B, 3)],
        [(2, B), (2, B)],
        [(B, 3), twin(B, 3)],
        gradients=True,
    )
    add(
        "OneHot",
        lambda x: [tf.one_hot(x, 3), tf.one_hot(x, 5, 2.0, -1.0, axis=0), tf.one_hot(x, 4, axis=1)],
        [ints(B, 3)],
        [ints(2, B)],
    )
    add("OneHot", lambda x: tf.one_hot(x, 3), [ints(B)], [ints(B, 2, 3)])
    add(
        "Range",
        lambda x: [
            tf.range(count(x)),
            tf.range(tf.shape(x, "int64")[0]) * 2,
            tf.cast(tf.range(count(x)), x.dtype)[:, None] * x,
        ],
        [(B, 3)],
    )
    add("Range", lambda x: tf.range(count(x) * 2), [(B, 3)])
    add(
        "SpaceToBatchND BatchToSpaceND",
        lambda x: [
            tf.space_to_batch(x, [2, 2], [[0, 0], [1, 0]]),
            tf.batch_to_space(
                tf.space_to_batch(x, [2, 1], [[0, 0], [0, 0]]) * 2, [2, 1], [[0, 0], [0, 1]]
            ),
        ],
        [(B, 4, 3, 2)],
        gradients=True,
    )
    return rows


def slices():
    """Return rows of slices and splits."""
    count = lambda x: tf.shape(x)[0]  # noqa: E731
    rows = []

    def add(types, fn, *inputs, **options):
        rows.append(Row(types, fn, list(inputs), **options))

    add(
        "StridedSlice StridedSliceGrad",
        lambda x: [
            x[:, 1:],
            x[:, ::2],
            x[:, 1],
            x[:, -1],
            x[..., 0],
            x[:, None],
            x[None],
            x[..., None, :],
            x[:, ::-1],
            x[: count(x), :2],
            x[0 : count(x)],
            x[:, tf.newaxis, 1:, ..., 1],
            x[:],
        ],
        [(B, 4, 3)],
        gradients=True,
    )
    add(
        "StridedSlice StridedSliceGrad",
        lambda x: [x[1], x[1:], x[..., 1:], x[0, :, 1], x[None, 1], x[:, : tf.shape(x)[1]]],
        [(2, B, 3)],
        gradients=True,
    )
    add(
        "StridedSlice",
        lambda x: [x[1:], x[:-1], x[::-1], x[::2], x[:2]],
        [(B, 3)],
        divided=False,
        gradients=True,
    )
    add("StridedSlice", lambda x: x[-1], [(B, 3)], divided=False, empty=False, gradients=True)
    add(
        "ConcatV2 StridedSlice StridedSliceGrad Split Slice SplitV",
        lambda x: [
            tf.concat([x, x * 2], 0)[: count(x)],
            tf.concat([x, x * 3], 0)[count(x) :],
            tf.concat([x, x * 3, -x], 0)[count(x) : 2 * count(x)],
            *tf.split(tf.concat([x, x * 2], 0), 2),
            *tf.split(tf.concat([x, x * 2], 0), [count(x), count(x)]),
            tf.slice(tf.concat([x, x * 2], 0), [count(x), 1], [count(x), 2]),
            tf.slice(tf.concat([x, x * 2], 0), [count(x), 0], [-1, -1]),
        ],
        [(B, 3)],
        gradients=True,
        static=False,
        batches=False,
        divided=False,
    )
    add(
        "ConcatV2 StridedSlice",
        lambda x, y: [
            tf.concat([x, y], 0)[: count(x)],
            tf.concat([x, y], 0)[count(x) :],
            *tf.split(tf.concat([x, y], 0), [count(x), count(y)]),
        ],
        [(B, 3), twin(B, 3)],
        gradients=True,
        divided=False,
    )
    add(
        "Slice",
        lambda x: [
            tf.slice(x, [0, 1], [-1, 2]),
            tf.slice(x, [0, 0], [count(x), -1]),
            tf.slice(x, [0, 1], [count(x), 1]),
            tf.slice(x, [0, 0], [-1, -1]),
        ],
        [(B, 3)],
        gradients=True,
    )
    add(
        "Slice",
        lambda x: [tf.slice(x, [1, 0], [1, -1]), tf.slice(x, [0, 0], [2, tf.shape(x)[1]])],
        [(2, B)],
        gradients=True,
    )
    add("Slice", lambda x: [tf.slice(x, [0, 1], [0, 2])], [(B, 3)], divided=False)
    add(
        "Split SplitV",
        lambda x: [
            *tf.split(x, 2, 1),
            *tf.split(x, 4, -1),
            *tf.split(x, [1, 3], 1),
            *tf.split(x, [-1, 1], 1),
        ],
        [(B, 4)],
        gradients=True,
    )
    add(
        "Split SplitV", lambda x: [*tf.split(x, 2), *tf.split(x, [1, -1])], [(2, B)], gradients=True
    )
    add(
        "Unpack",
        lambda x: [*tf.unstack(x, axis=1), *tf.unstack(x, axis=-1)],
        [(B, 2, 3)],
        gradients=True,
    )
    add("Unpack", lambda x: tf.unstack(x), [(2, B)], gradients=True)
    return rows


def indexing():
    """Return rows of look-ups, scatters and segments."""
    count = lambda x: tf.shape(x)[0]  # noqa: E731
    rows = []

    def add(types, fn, *inputs, **options):
        rows.append(Row(types, fn, list(inputs), **options))

    add(
        "GatherV2",
        lambda w, i: tf.gather(w, i),
        [(4, 2), ints(B)],
        [(4, 2), ints(B, 3)],
        [(4, 2), ints(3, B)],
        gradients=True,
    )
    add(
        "GatherV2",
        lambda w, i: tf.gather(w, i, axis=1),
        [(3, 4, 2), ints(B)],
        [(3, 4), ints(2, B)],
        [(B, 4), ints(3)],
        [(3, 4, B), ints(2, 3)],
        [(B, 4, 2), ints()],
    )
    add(
        "GatherV2",
        lambda x: [
            tf.gather(x, [2, 0], axis=1),
            tf.gather(x, 1, axis=-1),
            tf.gather(x, [[0, 1]], axis=1),
        ],
        [(B, 3)],
    )
    add(
        "GatherV2 UnsortedSegmentSum",
        lambda x: [tf.gather(x, [2, 0], axis=1), tf.gather(x, [[0, 1]], axis=1)],
        [(B, 3)],
        gradients=True,
        divided=False,
    )
    add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, batch_dims=1),
        [(B, 4), ints(B)],
        [(B, 4, 2), ints(B, 3)],
    )
    add("GatherV2", lambda x, i: tf.gather(x, i, axis=2, batch_dims=1), [(B, 2, 4), ints(B, 3)])
    add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, axis=2, batch_dims=2),
        [(B, 2, 4), ints(B, 2, 3)],
        [(2, B, 4), ints(2, B)],
    )
    add(
        "GatherV2",
        lambda x, i: tf.gather(x, i, batch_dims=1) * 2,
        [(B, 4), ints(B)],
        gradients=True,
        divided=False,
    )
    add(
        "GatherV2",
        lambda x, i: [tf.gather(x, tf.argsort(x[:, 0])), tf.gather(x, [0])],
        [(B, 3), ints(B)],
        divided=False,
        empty=False,
    )
    add(
        "Where GatherV2",
        lambda x: [
            tf.boolean_mask(x, x[:, 0] > 0),
            tf.gather(x, tf.where(x[:, 0] > 0)[:, 0]),
            tf.where(x > 0),
            tf.where(x[:, 0] > 0),
        ],
        [(B, 3)],
        batches=False,
    )
    add(
        "Where GatherV2",
        lambda x: [tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0) ** 2, 0)],
        [(B, 3)],
        batches=False,
        gradients=True,
        divided=False,
    )
    add("Where", lambda x: [tf.where(x > 0), tf.where(x)], [(2, B)], divided=False)
    add(
        "GatherNd",
        lambda w, i: tf.gather_nd(w, i),
        [(4, 4, 2), ints(B, 2)],
        [(4, 4), ints(3, B, 2)],
        [(4, 2), ints(B, 1)],
        gradients=True,
    )
    add(
        "GatherNd",
        lambda w, i: tf.gather_nd(w, i),
        [(4, 4), ints(2, B)],
        divided=False,
        batches=False,
        empty=False,
        static=False,
    )
    rows.pop()
    for kind in ("Sum", "Max", "Min", "Prod"):
        add(
            f"UnsortedSegment{kind}",
            raw(f"UnsortedSegment{kind}"),
        )
        rows[-1].inputs = [
            [Input(shape), ints(*index), ints()]
            for shape, index in (
                ((B, 3), (B,)),
                ((B, 3), (B, 3)),
                ((2, B, 3), (2, B)),
                ((2, B), (2, B)),
            )
        ]
        rows[-1].fn = lambda x, i, _, kind=kind: raw(f"UnsortedSegment{kind}")(x, i - 1, 4)
    add(
        "UnsortedSegmentSum",
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 4),
        [(B, 3), ints(B)],
        [(B, 2), twin(B, 2)],
        gradients=True,
        divided=False,
    )
    rows[-1].inputs = rows[-1].inputs[:1]
    add(
        "UnsortedSegmentSum", lambda x, i: tf.math.unsorted_segment_mean(x, i, 4), [(B, 3), ints(B)]
    )
    add(
        "UnsortedSegmentSum",
        lambda x, i: tf.math.unsorted_segment_sum(x, i, count(x)),
        [(B, 3), ints(B)],
        empty=False,
        divided=False,
    )
    rows.pop()
    add(
        "UnsortedSegmentSum",
        lambda x, i: tf.math.unsorted_segment_sum(x, i, 4),
        [(2, B), ints(2)],
        [(2, 3, B), ints(2, 3)],
    )
    add("ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4, 3]), [ints(B, 1), (B, 3)], gradients=True)
    add(
        "ScatterNd",
        lambda i, x: tf.scatter_nd(i, x, [4, 4]),
        [ints(B, 2), (B,)],
        [ints(B, 2, 2), (B, 2)],
    )
    add("ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4, 3]), [ints(B, 1), ints(B, 3)])
    add("ScatterNd", lambda i, x: tf.scatter_nd(i, x, [4]), [ints(B, 1), bools(B)], divided=False)
    add(
        "DenseBincount",
        lambda x: [
            tf.math.bincount(x, minlength=4, maxlength=4),
            tf.raw_ops.DenseBincount(input=x, size=5, weights=tf.zeros([0])),
        ],
        [ints(B)],
        divided=False,
    )

    def bins(binary):
        return lambda x, *w: tf.raw_ops.DenseBincount(
            input=x, size=5, weights=w[0] if w else tf.zeros([0]), binary_output=binary
        )

    add(
        "DenseBincount", bins(False), [ints(B)], [ints(B, 3)], [ints(B, 3), (B, 3)], [ints(B), (B,)]
    )
    add("DenseBincount", bins(True), [ints(B, 3)])
    add("DenseBincount", bins(True), [ints(B)], divided=False)
    add("LookupTableFindV2", looked_up, [ints(B)], [ints(B, 2)])
    table = np.arange(12.0).reshape(4, 3)
    add(
        "ResourceGather",
        lambda i, v: tf.raw_ops.ResourceGather(resource=v.handle, indices=i, dtype="float64"),
        [ints(B)],
        [ints(2, B)],
        variable=table,
    )
    add(
        "ResourceGatherNd",
        lambda i, v: tf.raw_ops.ResourceGatherNd(resource=v.handle, indices=i % 3, dtype="float64"),
        [ints(B, 2)],
        [ints(2, B, 1)],
        variable=table,
    )
    add(
        "ReadVariableOp VariableShape",
        lambda x, v: [x * v[0], tf.raw_ops.VariableShape(input=v.handle)],
        [(B, 3)],
        variable=table,
    )
    rows[-1].types = ""
    kinds = ["Add", "Sub", "Update", "Mul", "Div", "Min", "Max"]

    def scattered(i, x, v, kind):
        v.assign(table)
        with tf.control_dependencies(
            [getattr(tf.raw_ops, kind)(resource=v.handle, indices=i, updates=x)]
        ):
            return v.read_value()

    for kind in kinds:
        inputs = [ints(B), (B, 3)]
        fn = functools.partial(scattered, kind=f"ResourceScatter{kind}")
        if kind == "Update":  # of the same values where an index is twice
            fn = lambda i, x, v, fn=fn: fn(i, tf.cast(i, x.dtype)[:, None] + [[1.0, 2, 3]], v=v)  # noqa: E731
        add(f"ResourceScatter{kind}", fn, inputs, variable=table, batches=False)
    for kind in ("Add", "Sub", "Update"):

        def fn(i, x, v, kind=kind):
            x = tf.cast(i, x.dtype) + tf.constant([[1.0, 2, 3]], x.dtype) if kind == "Update" else x
            v.assign(table)
            with tf.control_dependencies(
                [
                    getattr(tf.raw_ops, f"ResourceScatterNd{kind}")(
                        ref=v.handle, indices=i, updates=x
                    )
                ]
            ):
                return v.read_value()

        add(f"ResourceScatterNd{kind}", fn, [ints(B, 1), (B, 3)], variable=table, batches=False)
    add(
        "GatherV2 ResourceGather",
        lambda i, v: tf.nn.embedding_lookup(v, i) ** 2,
        [ints(B, 3)],
        variable=table,
        divided=False,
    )
    rows[-1].types = ""
    return rows


def rowwise():
    """Return rows of operations on samples: images, convolutions, linear algebra."""
    rows = []

    def add(types, fn, *inputs, **options):
        options.setdefault("batches", False)
        rows.append(Row(types, fn, list(inputs), **options))

    image = (B, 6, 6, 2)
    twice = {"gradients": True}
    add(
        "Conv2D Conv2DBackpropInput Conv2DBackpropFilter",
        lambda x, w: [
            tf.nn.conv2d(x, w, 1, "SAME"),
            tf.nn.conv2d(x, w, 2, "VALID"),
        ],
        [image, (3, 3, 2, 4)],
        batches=True,
        **twice,
    )
    add(
        "Conv2DBackpropInput",
        lambda x, w: tf.nn.conv2d_transpose(x, w, [tf.shape(x)[0], 12, 12, 3], 2),
        [image, (3, 3, 3, 2)],
        batches=True,
        **twice,
    )
    add(
        "Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2",
        lambda x, w: [tf.nn.conv3d(x, w, [1] * 5, "SAME")],
        [(B, 3, 4, 4, 2), (2, 2, 2, 2, 3)],
        **twice,
    )
    add(
        "Conv3DBackpropInputV2",
        lambda x, w: tf.nn.conv3d_transpose(x, w, [tf.shape(x)[0], 6, 6, 6, 2], 2),
        [(B, 3, 3, 3, 3), (2, 2, 2, 2, 3)],
        **twice,
    )
    add(
        "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput "
        "DepthwiseConv2dNativeBackpropFilter",
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
        [image, (3, 3, 2, 2)],
        empty=False,
        **twice,
    )
    add(
        "DepthwiseConv2dNative SpaceToBatchND BatchToSpaceND",
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        [image, (3, 3, 2, 2)],
        empty=False,
        **twice,
    )
    add(
        "AvgPool AvgPoolGrad MaxPool MaxPoolGrad",
        lambda x: [tf.nn.avg_pool2d(x, 2, 2, "VALID"), tf.nn.max_pool2d(x, 3, 2, "SAME")],
        [image],
        batches=True,
        **twice,
    )
    add(
        "AvgPool3D AvgPool3DGrad MaxPool3D MaxPool3DGrad",
        lambda x: [
            tf.nn.avg_pool3d(tf.cast(x, "float32"), 2, 2, "VALID"),
            tf.nn.max_pool3d(tf.cast(x, "float32"), 2, 1, "SAME"),
        ],
        [(B, 3, 4, 4, 2)],
        tolerance=1e-5,
        empty=False,
        **twice,
    )

    single = lambda x: tf.cast(x, "float32")  # noqa: E731 - which oneDNN computes
    add(
        "Conv2D BiasAdd MaxPool MaxPoolGrad",
        lambda x, w: tf.nn.max_pool2d(
            tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(single(x), single(w), 1, "SAME"), tf.ones([4]))),
            2,
            2,
            "VALID",
        ),
        [image, (3, 3, 2, 4)],
        empty=False,
        tolerance=1e-4,
        **twice,
    )
    add(
        "Conv3D",
        lambda x, w: tf.nn.conv3d(single(x), single(w), [1] * 5, "VALID"),
        [(B, 3, 4, 4, 2), (2, 2, 2, 2, 3)],
        empty=False,
        tolerance=1e-4,
        **twice,
    )
    add(
        "DepthwiseConv2dNative",
        lambda x, w: tf.nn.depthwise_conv2d(single(x), single(w), [1] * 4, "SAME"),
        [image, (3, 3, 2, 2)],
        empty=False,
        tolerance=1e-4,
        **twice,
    )

    def second_order(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "VALID") ** 3)
        return tf.reduce_sum(tape.gradient(y, x) ** 2, [1, 2, 3])

    add("MaxPoolGradGrad", second_order, [image], **twice)
    add("Conv2D", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME", dilations=2), [image, (3, 3, 2, 4)])
    add(
        "BiasAdd BiasAddGrad",
        lambda x, b: tf.nn.bias_add(x, b),
        [(B, 3), (3,)],
        [(B, 2, 3), (3,)],
        [image, (2,)],
        batches=True,
        **twice,
    )
    add(
        "DepthToSpace SpaceToDepth",
        lambda x: [tf.nn.depth_to_space(x, 2), tf.nn.space_to_depth(x, 2)],
        [(B, 2, 2, 4)],
        batches=True,
        **twice,
    )
    add(
        "Dilation2D Dilation2DBackpropInput",
        lambda x, w: tf.nn.dilation2d(x, w, [1] * 4, "SAME", "NHWC", [1] * 4),
        [image, (2, 2, 2)],
        divided=False,
        **twice,
    )
    add(
        "ExtractImagePatches",
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"),
        [image],
        divided=False,
        empty=False,
        **twice,
    )
    add("LRN LRNGrad", lambda x: tf.nn.lrn(tf.cast(x, "float32")), [image], tolerance=1e-6, **twice)
    add(
        "ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad "
        "ResizeBicubic ResizeBicubicGrad",
        lambda x: [
            getattr(tf.compat.v1.image, f"resize_{kind}")(tf.cast(x, "float32"), [4, 9])
            for kind in ("bilinear", "nearest_neighbor", "bicubic")
        ],
        [image],
        tolerance=1e-5,
        **twice,
    )
    add("ResizeArea", lambda x: tf.compat.v1.image.resize_area(x, [4, 9]), [image], tolerance=1e-6)
    add(
        "ScaleAndTranslate ScaleAndTranslateGrad",
        lambda x: tf.image.resize(tf.cast(x, "float32"), [4, 9], antialias=True),
        [image],
        tolerance=1e-5,
        **twice,
    )
    color = (B, 3, 4, 3)
    add(
        "RGBToHSV HSVToRGB AdjustHue AdjustSaturation AdjustContrastv2",
        lambda x: [
            tf.image.rgb_to_hsv(half(x)),
            tf.image.hsv_to_rgb(half(x)),
            tf.raw_ops.AdjustHue(images=tf.cast(half(x), "float32"), delta=0.1),
            tf.raw_ops.AdjustSaturation(images=tf.cast(half(x), "float32"), scale=1.5),
            tf.raw_ops.AdjustContrastv2(images=tf.cast(half(x), "float32"), contrast_factor=2.0),
        ],
        [color],
        batches=True,
        tolerance=1e-6,
    )
    add(
        "AdjustContrastv2",
        lambda x: tf.raw_ops.AdjustContrastv2(images=tf.cast(x, "float32"), contrast_factor=2.0),
        [(B, 4, 3)],
        divided=False,
        empty=False,
        tolerance=1e-6,
    )
    add(
        "ImageProjectiveTransformV3",
        lambda x, t: tf.raw_ops.ImageProjectiveTransformV3(
            images=x,
            transforms=tf.cast(t * 0.1 + [1, 0, 0, 0, 1, 0, 0, 0], "float32"),
            output_shape=[5, 6],
            fill_value=0.0,
            interpolation="BILINEAR",
        ),
        [image, (B, 8)],
        [image, (1, 8)],
        tolerance=1e-5,
        mixed=False,
    )
    add(
        "CropAndResize",
        lambda x, b, i: tf.image.crop_and_resize(x, tf.cast(b, "float32"), i, [2, 3]),
        [(4, 6, 6, 2), (B, 4), ints(B)],
        tolerance=1e-5,
    )
    add(
        "CombinedNonMaxSuppression",
        lambda b, s: tf.image.combined_non_max_suppression(
            tf.cast(tf.concat([b, b + 1], -1), "float32"),
            tf.cast(s, "float32"),
            2,
            3,
            score_threshold=0.0,
        ),
        [(B, 5, 1, 2), (B, 5, 2)],
        empty=False,
    )
    add(
        "InTopKV2",
        lambda x, i: tf.math.in_top_k(i, tf.cast(x, "float32"), 2),
        [(B, 4), ints(B)],
        batches=True,
    )
    add(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=half(y))[0],
        [(B, 4), (B, 4)],
        batches=True,
    )
    add(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
        [(B, 4), (B, 4)],
        mixed=False,
        **twice,
    )
    add(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        [(B, 4), ints(B)],
        [(B, 4), ints(B)],
        batches=True,
        **twice,
    )
    add(
        "Softmax LogSoftmax TopKV2",
        lambda x: [tf.nn.softmax(x), tf.nn.log_softmax(x), *tf.math.top_k(x, 2)],
        [(B, 3)],
        [(2, B, 3)],
        batches=True,
        **twice,
    )
    add(
        "Softmax",
        lambda x: [tf.nn.softmax(x, axis=1), tf.nn.softmax(x, axis=0)],
        [(2, B)],
        divided=False,
    )
    matrix = lambda x: tf.matmul(x, x, transpose_b=True) + 3 * tf.eye(3, dtype=x.dtype)  # noqa: E731
    square = (B, 3, 3)
    add("Cholesky CholeskyGrad", lambda x: [tf.linalg.cholesky(matrix(x))], [square])
    rows[-1].types = "Cholesky"
    add(
        "CholeskyGrad",
        lambda x, g: tf.raw_ops.CholeskyGrad(l=tf.linalg.cholesky(matrix(x)), grad=g),
        [square, square],
        tolerance=1e-10,
    )
    add(
        "LogMatrixDeterminant Lu MatrixBandPart MatrixDeterminant MatrixDiagPartV3 MatrixInverse "
        "Qr SelfAdjointEigV2 Svd",
        lambda x: [
            *tf.linalg.slogdet(matrix(x)),
            *tf.linalg.lu(matrix(x)),
            tf.linalg.band_part(x, 1, 0),
            tf.linalg.det(matrix(x)),
            tf.linalg.diag_part(x),
            tf.linalg.diag_part(x, k=(-1, 1)),
            tf.linalg.inv(matrix(x)),
            *tf.linalg.qr(matrix(x)),
            *tf.linalg.eigh(matrix(x)),
            *tf.linalg.svd(matrix(x)),
            tf.linalg.trace(x),
        ],
        [square],
        [(2, B, 3, 3)],
        tolerance=1e-10,
    )
    add(
        "MatrixDiagV3", lambda x: [tf.linalg.diag(x), tf.linalg.diag(x, k=1)], [(B, 3)], [(2, B, 3)]
    )
    add("MatrixDiagV3", lambda x: tf.linalg.diag(x, k=(0, 1)), [(B, 2, 3)], divided=False)
    add(
        "MatrixSetDiagV3",
        lambda x, d: tf.linalg.set_diag(x, d),
        [square, (B, 3)],
        [(2, B, 3, 3), (2, B, 3)],
    )
    add(
        "MatrixSolve MatrixTriangularSolve",
        lambda x, y: [tf.linalg.solve(matrix(x), y), tf.linalg.triangular_solve(matrix(x), y)],
        [square, (B, 3, 2)],
        tolerance=1e-10,
    )
    add(
        "MatrixTriangularSolve",
        lambda x, y: tf.linalg.triangular_solve(matrix(x), y),
        [(1, 3, 3), (B, 3, 2)],
        [(B, 3, 3), (1, 3, 2)],
        tolerance=1e-10,
    )
    add(
        "Cross",
        lambda x, y: tf.linalg.cross(x, y),
        [(B, 3), (B, 3)],
        [(2, B, 3), (2, B, 3)],
        batches=True,
        **twice,
    )
    add(
        "Roll",
        lambda x: [tf.roll(x, 1, 1), tf.roll(x, [1, -1], [-1, 1])],
        [(B, 3, 4)],
        batches=True,
        **twice,
    )
    add("Roll", lambda x: tf.roll(x, 1, 0), [(B, 3)], divided=False)
    volume = (B, 2, 4, 4)
    add(
        "FFT FFT2D FFT3D IFFT IFFT2D IFFT3D RFFT IRFFT",
        lambda x: [
            tf.signal.fft(as_complex(x)),
            tf.signal.fft2d(as_complex(x)),
            tf.signal.fft3d(as_complex(x)),
            tf.signal.ifft(as_complex(x)),
            tf.signal.ifft2d(as_complex(x)),
            tf.signal.ifft3d(as_complex(x)),
            tf.signal.rfft(x),
            tf.signal.irfft(as_complex(x)),
        ],
        [volume],
        [(2, B, 2, 4, 4)],
    )
    return rows


def random():
    """Return rows of random numbers, which are the same as on one device."""
    rows = []
    types = ["Normal", "UniformFullInt", "UniformInt", "Uniform", "TruncatedNormal"]

    def shapes_of(x):
        n = tf.shape(x)[0]
        return [[n], [n, 3], tf.shape(x), [n, 4], [n * 2, 5], [n, 0], [2, n]]

    def second(kind, dtype, more):
        def make(x):
            key, counter = tf.constant([7], "uint64"), tf.constant([1, 2], "uint64")
            draw = getattr(tf.raw_ops, f"Stateless{kind}V2")
            return [
                draw(shape=s, key=key, counter=counter, alg=1, dtype=dtype, **more)
                if more is None or "minval" not in more
                else draw(shape=s, key=key, counter=counter, alg=1, **more)
                for s in shapes_of(x)
            ]

        return make

    def first(kind, dtype, more):
        def make(x):
            draw = getattr(tf.raw_ops, f"Stateless{kind}")
            options = {"dtype": dtype} if "minval" not in more else {}
            return [draw(shape=s, seed=[3, 4], **options, **more) for s in shapes_of(x)[:3]]

        return make

    for kind in types:
        name = f"Random{kind}" if kind != "TruncatedNormal" else kind
        integers = kind.endswith("Int")
        for dtype in ("int32", "int64") if integers else ("float32", "float64", "float16"):
            more = (
                {
                    "minval": tf.constant(-9, dtype).numpy(),
                    "maxval": tf.constant(1000, dtype).numpy(),
                }
                if kind == "UniformInt"
                else {}
            )
            rows.append(
                Row(f"Stateless{name}V2", second(name, dtype, more), [[(B, 3)]], divided=False)
            )
            rows.append(
                Row(
                    f"Stateless{name}",
                    first(name, dtype, more),
                    [[(B, 3)]],
                    divided=False,
                    batches=False,
                    static=False,
                )
            )
    return rows


def control():
    """Return rows of loops, conditions and lists."""
    rows = []

    def add(types, fn, *inputs, **options):
        options.setdefault("batches", False)
        rows.append(Row(types, fn, list(inputs), **options))

    def rnn(x, w):
        steps = tf.shape(x)[1]
        array = tf.TensorArray(x.dtype, steps, element_shape=[None, 3])
        state = tf.zeros([tf.shape(x)[0], 3], x.dtype)

        def body(t, state, array):
            state = tf.tanh(x[:, t] @ w + state)
            return t + 1, state, array.write(t, state)

        _, state, array = tf.while_loop(lambda t, *_: t < steps, body, (0, state, array))
        return state, tf.transpose(array.stack(), [1, 0, 2])

    add(
        "StatelessWhile TensorListReserve TensorListSetItem TensorListStack",
        rnn,
        [(B, 4, 2), (2, 3)],
    )
    add(
        "StatelessWhile TensorListReserve TensorListSetItem TensorListStack",
        rnn,
        [(B, 4, 2), (2, 3)],
        gradients=True,
    )
    rows[-1].types = ""

    def scanned(x, w):
        columns = tf.transpose(x, [1, 0, 2])
        return tf.scan(
            lambda a, e: tf.tanh(e @ w + a), columns, initializer=tf.zeros_like(x[:, 0] @ w)
        )

    add("StatelessWhile", scanned, [(B, 4, 2), (2, 3)], gradients=True, divided=False)

    def read_back(x):
        array = tf.TensorArray(x.dtype, 4).unstack(tf.transpose(x))
        total = tf.while_loop(
            lambda t, _: t < 4,
            lambda t, a: (t + 1, a + array.read(t) * tf.cast(t, x.dtype)),
            (0, tf.zeros_like(x[:, 0])),
        )
        return total[1]

    add("StatelessWhile TensorListFromTensor", read_back, [(B, 4)], gradients=True)
    rows[-1].types = "StatelessWhile TensorListFromTensor TensorListGetItem"
    add(
        "StatelessWhile",
        lambda x: tf.while_loop(
            lambda i, _: i < 3, lambda i, a: (i + 1, a * 1.5 + tf.reduce_mean(a)), (0, x)
        )[1],
        [(B, 3)],
        divided=False,
    )
    add(
        "StatelessWhile",
        lambda x: tf.while_loop(
            lambda a: tf.reduce_sum(a) < 10, lambda a: a * 2 + 1, (positive(x),)
        )[0],
        [(B, 3)],
        divided=False,
        empty=False,
    )
    add(
        "StatelessIf",
        lambda x: tf.cond(tf.shape(x)[0] > 3, lambda: x * 2, lambda: tf.sin(x)),
        [(B, 3)],
        gradients=True,
    )
    add(
        "StatelessIf",
        lambda x: tf.cond(tf.reduce_mean(x) > 0, lambda: x * 2, lambda: tf.zeros_like(x)),
        [(B, 3)],
        gradients=True,
    )
    add(
        "StatelessIf",
        lambda x: tf.cond(
            tf.reduce_mean(x) > 0, lambda: tf.reduce_sum(x, 0), lambda: tf.reduce_mean(x, 0) ** 2
        ),
        [(B, 3)],
        gradients=True,
        divided=False,
    )
    add("While If", with_variable, [(B, 3)], variable=np.arange(3.0))
    add("StatelessCase", switched, [(B, 3)])
    add("StatelessCase", switched, [(B, 3)], gradients=True, divided=False)
    add("Case", lambda x, v: switched(x * v) + switched(x, v), [(B, 3)], variable=np.arange(3.0))
    add("While If", with_variable, [(B, 3)], variable=np.arange(3.0), gradients=True, divided=False)

    def lists(x):
        made = tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([-1, 3]), max_num_elements=5, element_dtype=x.dtype
        )
        for one in (x, x * 2, x * 3):
            made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=one)
        shape = tf.constant([-1, 3])
        rest, last = tf.raw_ops.TensorListPopBack(
            input_handle=made, element_shape=shape, element_dtype=x.dtype
        )
        more = tf.raw_ops.TensorListResize(input_handle=rest, size=3)
        more = tf.raw_ops.TensorListSetItem(input_handle=more, index=2, item=x * 5)
        return [
            last,
            tf.raw_ops.TensorListLength(input_handle=rest),
            tf.raw_ops.TensorListStack(
                input_handle=more, element_shape=shape, element_dtype=x.dtype
            ),
            tf.raw_ops.TensorListGetItem(
                input_handle=more, index=1, element_shape=shape, element_dtype=x.dtype
            ),
        ]

    kinds = ["PushBack", "PopBack", "Resize", "SetItem", "Length", "Stack", "GetItem"]
    add(" ".join(["EmptyTensorList", *(f"TensorList{kind}" for kind in kinds)]), lists, [(B, 3)])
    return rows


def switched(x, v=1.0):
    """Return what one of three branches makes."""
    branches = [lambda: x * v, lambda: tf.sin(x) + v, lambda: x - v]
    return tf.switch_case(tf.shape(x)[0] % 3, branches)


def looked_up(x):
    """Return what is found in a table."""
    with tf.init_scope():
        keys, found = tf.constant([0, 1, 2]), tf.constant([5.0, 6.0, 7.0])
        initializer = tf.lookup.KeyValueTensorInitializer(keys, found)
        table = tf.lookup.StaticHashTable(initializer, -1.0)
    TABLES.append(table)
    return table.lookup(x)


TABLES = []  # has to outlive the programs


def with_variable(x, v):
    """Return what a condition and a loop make that read a variable."""
    found = tf.cond(tf.shape(x)[0] > 3, lambda: x * v, lambda: tf.sin(x) + v)
    return found, tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * v), (0, x))[1]


FAMILIES = {
    "elementwise": elementwise,
    "partials": partials,
    "reductions": reductions,
    "contractions": contractions,
    "shapes": shapes,
    "slices": slices,
    "indexing": indexing,
    "rowwise": rowwise,
    "random": random,
    "control": control,
}
ROWS = {family: make() for family, make in FAMILIES.items()}
_PARAMETERS = [
    pytest.param(family, index, id=f"{family}-{index}-{row.name}")
    for family, rows in ROWS.items()
    for index, row in enumerate(rows)
]


@functools.cache
def _tried(family, empty, static, index=None):
    """Return a program of the rows of a family, or of one of them, or why there is none."""
    rows = ROWS[family] if index is None else [ROWS[family][index]]
    rows = [row for row in rows if row.empty == empty]
    program = Program([row for row in rows if row.static or not static], STATIC if static else None)
    try:
        for counts in [STATIC] if static else COUNTS:
            if counts != (0, 0, 0) or empty:
                program.results(counts)
    except Exception as error:  # a row's: its own test will show it
        return error
    return program


def _program(family, index, static=False):
    """Return the program of a family; if a row of it fails, one of this row."""
    empty = ROWS[family][index].empty
    found = _tried(family, empty, static)
    if isinstance(found, Exception):
        found = _tried(family, empty, static, index)
    if isinstance(found, Exception):
        raise found
    return found


@pytest.mark.parametrize(("family", "index"), _PARAMETERS)
def test_rule(family, index):
    row = ROWS[family][index]
    program = _program(family, index)
    for counts in COUNTS if row.empty else COUNTS[:-1]:
        check(program, row, counts)
    check_divided(program, row)
    if row.static:
        program = _program(family, index, static=True)
        check(program, row, STATIC)
        check_divided(program, row)


EXEMPT = {
    "Assert": "has no result",
    "Const": "is whole",
    "EmptyTensorMap": "is whole",
    "NoOp": "has no result",
    "Placeholder": "is an input",
    "ReadVariableOp": "is whole; read by the rows with variables",
    "VariableShape": "is whole; read by the rows with variables",
    "TensorListConcatV2": "is computed whole",
    "TensorListElementShape": "gives the rows also where one device leaves them open",
    "LookupTableSizeV2": "is whole",
    "VarIsInitializedOp": "is whole",
}


def test_every_rule_has_a_row():
    """A rule without a row is not known to be right; kernels are tested in tests/ops."""
    tested = {kind for rows in ROWS.values() for kind in types_of(rows)}
    rules = {kind for kind in RULES if not kind.startswith("kernel:")}
    missing = sorted(rules - tested - set(EXEMPT))
    assert not missing
    assert not set(EXEMPT) - rules
