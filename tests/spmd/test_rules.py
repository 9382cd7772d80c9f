"""Every sharding rule, against the whole computation."""

import functools
import os

import numpy as np
import pytest
import tensorflow as tf
from conftest import without_graph_optimizer_in_module  # noqa: F401
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

    def one(kinds, domain=lambda x: x, inputs=ONE, **attributes):
        rows.extend(Row(kind, of(domain, kind, **attributes), inputs) for kind in kinds.split())

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
        Row("Angle", of(as_complex, "Angle", Tout=tf.float64), ONE),
        Row("Conj", of(as_complex, "Conj"), ONE),
        Row("Imag", of(as_complex, "Imag", Tout=tf.float64), ONE),
        Row("Real", of(as_complex, "Real", Tout=tf.float64), ONE),
        Row("ComplexAbs", of(as_complex, "ComplexAbs", Tout=tf.float64), ONE),
    ]
    one("Invert PopulationCount", inputs=[[ints(B, 3)], [ints(2, B)]])
    one("LogicalNot", inputs=[[bools(B, 3)], [bools(2, B)]])
    strings = functools.partial(one, domain=tf.as_string)
    strings("StringLength StringLower StringStrip StringUpper")
    strings("StringToHashBucket StringToHashBucketFast", num_buckets=7)
    strings("StringToHashBucketStrong", num_buckets=7, key=[1, 2])
    strings("StringToNumber", out_type="float64")
    strings("StaticRegexFullMatch", pattern="-.*")
    strings("StaticRegexReplace", pattern="1", rewrite="one")
    for kind, rest in (("RegexFullMatch", ["-.*"]), ("RegexReplace", ["1", "one"])):
        make = with_constants(kind, *rest)
        rows.append(Row(kind, lambda x, make=make: make(tf.as_string(x)), ONE))
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

    def two(kinds, domain=lambda x: x, inputs=TWO, **attributes):
        rows.extend(Row(kind, of(domain, kind, **attributes), inputs) for kind in kinds.split())

    two("Add AddV2 Atan2 Equal Greater GreaterEqual Less LessEqual Maximum Minimum Mul MulNoNan")
    two("NotEqual SquaredDifference Sub")
    two("Div DivNoNan RealDiv FloorDiv FloorMod Pow Xdivy Xlogy Xlog1py", positive)
    two("Igamma Igammac IgammaGradA", positive)
    two("RandomGammaGrad", positive)
    two("Zeta", lambda x: positive(x) + 1)
    two("NextAfter")
    two("Complex", Tout="complex128")
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
    truths = [[Input(i if isinstance(i, tuple) else i.shape, "bool") for i in t] for t in TWO]
    two("LogicalAnd LogicalOr", inputs=truths)
    two(
        "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad",
        inputs=ALIKE,
    )
    two("SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad", inputs=ALIKE)
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
            lambda x: (tf.shape(x), tf.raw_ops.Size(input=x), tf.raw_ops.Rank(input=x)),
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
            "Mean Sum BroadcastGradientArgs",
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


FAMILIES = {
    "elementwise": elementwise,
    "partials": partials,
    "reductions": reductions,
    "contractions": contractions,
}
ROWS = {family: make() for family, make in FAMILIES.items()}
_PARAMETERS = [
    pytest.param(family, index, id=f"{family}-{index}-{row.name}")
    for family, rows in ROWS.items()
    for index, row in enumerate(rows)
]


@functools.cache
def program_of(family, static, index=None):
    """Return a program of all rows of a family; of one row, if that fails."""
    rows = ROWS[family] if index is None else [ROWS[family][index]]
    if static:
        rows = [row for row in rows if row.static]
    return Program(rows, STATIC if static else None)


def _program(family, index, counts, static=False):
    try:
        program = program_of(family, static)
        program.results(counts)
    except Exception:
        program = program_of(family, static, index)
        program.results(counts)
    return program


@pytest.mark.parametrize(("family", "index"), _PARAMETERS)
def test_rule(family, index):
    row = ROWS[family][index]
    for counts in COUNTS if row.empty else COUNTS[:-1]:
        program = _program(family, index, counts)
        check(program, row, counts)
    check_divided(program, row)
    if row.static:
        program = _program(family, index, STATIC, static=True)
        check(program, row, STATIC)
        check_divided(program, row)


def test_every_rule_has_a_row():
    """A rule without a row is not known to be right."""
    tested = {kind for rows in ROWS.values() for kind in types_of(rows)}
    missing = {kind for kind in RULES if not kind.startswith("kernel:")} - tested
    assert not missing
