"""Operations on corresponding elements, and sums that are not reduced yet."""

import functools

import tensorflow as tf
from rule_harness import (
    NONE,
    B,
    Input,
    Table,
    as_complex,
    bools,
    half,
    ints,
    of,
    partial,
    positive,
    raw,
    twin,
    unit,
    with_constants,
)

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


def _of_unknown_sizes(x, y):
    """Multiply tensors whose second axes have sizes that are not known while tracing, 1 and 4."""
    x, y = _repeated(x, 1), _repeated(y, 4)
    product = x * y
    flat = tf.reshape(product, [-1, 3])
    return product, tf.shape(product), tf.reduce_mean(product, 1), tf.reduce_sum(flat, 1)


def _repeated(x, times):
    times = tf.cast(tf.linalg.norm([0.0, float(times)]), "int32")
    return tf.tile(x[:, None], [1, times, 1])


def elementwise():
    """Return rows of operations on corresponding elements."""
    rows = Table()
    quick = {"batches": False, "replicated": False, "static": False}
    rows.add(
        "Tanh Neg Cast Identity StopGradient",
        lambda x: (tf.tanh(x), -x, tf.cast(x, "float32"), tf.identity(tf.stop_gradient(x))),
        *ONE,
        [(2, B, 3)],
    )
    rows.add("AddV2", raw("AddV2"), *TWO)
    # An axis of unknown size may be 1 and broadcast: shapes, sums and gradients follow.
    rows.add(
        "Mul Shape",
        _of_unknown_sizes,
        [(B, 3), (B, 3)],
        gradients=True,
        mixed=False,
        batches=False,
        static=False,
    )

    def one(kinds, domain=lambda x: x, inputs=ALONG, **attributes):
        for kind in kinds.split():
            rows.add(kind, of(domain, kind, **attributes), *inputs, **quick)

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
    one("EnsureShape", inputs=[[(2, B, 3)]], shape=[2, None, None])
    one("AsString", lambda x: tf.cast(x * 100, "int32"))
    one("Conj", as_complex)
    one("Angle ComplexAbs Imag Real", as_complex, Tout="float64")
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
        rows.add(kind, lambda x, make=make: make(tf.as_string(x)), *ALONG, **quick)

    def two(kinds, domain=lambda x: x, inputs=PAIRS, **attributes):
        for kind in kinds.split():
            rows.add(kind, of(domain, kind, **attributes), *inputs, **quick)

    two("Add AddV2 Atan2 Equal Greater GreaterEqual Less LessEqual Maximum Minimum Mul MulNoNan")
    two("NotEqual SquaredDifference Sub")
    two("Div DivNoNan RealDiv FloorDiv FloorMod Pow Xdivy Xlogy Xlog1py", positive)
    two("Igamma Igammac IgammaGradA", positive)
    two("RandomGammaGrad", positive)
    two("Zeta", lambda x: positive(x) + 1)
    two("NextAfter")
    two("Complex", Tout="complex128")
    rows.add(
        "Betainc",
        lambda a, b, x: tf.math.betainc(positive(a), positive(b), half(x)),
        [(B, 3), (B, 3), (B, 3)],
        [(), (), (2, B)],
        static=False,
    )
    two("ApproximateEqual", inputs=ALIKE, tolerance=0.3)
    rows.add(
        "Polygamma",
        lambda a, x: tf.raw_ops.Polygamma(a=tf.round(positive(a)), x=positive(x)),
        *PAIRS,
        **quick,
    )
    whole_numbers = [
        [Input(i if isinstance(i, tuple) else i.shape, "int32") for i in t] for t in PAIRS
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
    rows.add("AddN", lambda *x: tf.raw_ops.AddN(inputs=list(x)), *ALIKE)
    rows.add(
        "ClipByValue",
        raw("ClipByValue"),
        [(B, 3), (), ()],
        [(B, 3), (B, 3), (B, 3)],
        [(2, B), (2, B), (2, B)],
    )
    rows.add(
        "SelectV2",
        raw("SelectV2"),
        [bools(B, 1), (B, 3), (3,)],
        [bools(B, 3), (), (B, 3)],
        [bools(), (B, 3), (B, 3)],
        [bools(2, B), (B,), (2, 1)],
        [bools(3), (B, 3), (B, 1)],
    )
    rows.add(
        "Select",
        raw("Select"),
        [bools(B, 3), (B, 3), twin(B, 3)],
        [bools(2, B), (2, B), (2, B)],
        [bools(), (B, 3), (B, 3)],
    )
    rows.add("Select", raw("Select"), [bools(B), (B, 3), (B, 3)], divided=NONE)
    rows.add("Bitcast", with_constants("Bitcast", type="int64"), *ONE)
    rows.add("Bitcast", with_constants("Bitcast", type="int32"), *ONE, divided=NONE)
    rows.add("IdentityN", lambda *x: tf.raw_ops.IdentityN(input=list(x)), *TWO[:3])
    rows.add(
        "AddV2 BroadcastGradientArgs Sum",
        lambda a, b: (a + 2) * b,
        *TWO,
        [(B, 1), (B, 3)],
        [(B, 1, 3), (4, 1)],
        [(1, B), (2, 1)],
        mixed=False,
        gradients=True,
    )

    def with_own_dims(a, b):
        return a[: tf.shape(a)[0], : tf.shape(b)[-1]] * b

    rows.add(
        "AddV2 BroadcastGradientArgs",
        lambda a, b: with_own_dims(a, b) + b,
        *TWO[:1],
        divided=NONE,
        gradients=True,
        batches=False,
        replicated=False,
        static=False,
    )
    rows.add("SelectV2", lambda x: tf.where(x > 0, x, tf.zeros_like(x)), *ONE, gradients=True)
    return rows


def partials():
    """Return rows of linear operations on sums that are not reduced yet."""
    p, c = partial(2, 3), (2, 3)
    rows = Table(batches=False, static=False)
    rows.add("Identity", lambda x: tf.identity(x) + 1, [p], divided=NONE)
    rows.add(
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
        [p],
    )
    rows.add(
        "Cast",
        with_constants("Cast", DstT="float64"),
        [partial(2, dtype="float32")],
        divided=NONE,
        tolerance=1e-5,
    )
    for dtype in ("int32", "int64", "float16"):  # what overflows, or wraps, as a whole
        rows.add(
            "Cast",
            with_constants("Cast", DstT="float64"),
            [partial(2, dtype=dtype)],
            divided=NONE,
            tolerance=1e-2,
        )
    rows.add(
        "Cast",
        with_constants("Cast", DstT="float32"),
        [partial(2, dtype="bfloat16")],
        tolerance=0.05,
    )
    rows.add("AddV2", lambda x: x + x, [partial(2, dtype="float16")], divided=NONE, tolerance=1e-2)
    rows.add("SquaredDifference", tf.math.squared_difference, [(B, 3), partial(3)], divided=NONE)
    rows.add("AddV2 Sub AddN", lambda x, y: (x + y, x - y, tf.add_n([x, y])), [p, p])
    rows.add(
        "AddV2 Sub",
        lambda x, y: (x + y, x - y),
        [p, partial(3)],
        [p, partial(2, 1)],
        [partial(), p],
    )
    rows.add("AddN", lambda x, y, z: tf.add_n([x, y, z]), [p, c, p], [c, p, p])
    rows.add(
        "Mul RealDiv Maximum",
        lambda x, y: (x * y, x / y, tf.maximum(x, y)),
        [p, p],
        [p, c],
        [c, p],
        [p, (3,)],
        divided=NONE,
    )
    rows.add("SelectV2", lambda c, x, y: tf.where(c > 0, x, y), [c, p, p])
    rows.add(
        "SelectV2",
        lambda c, x, y: tf.where(c > 0, x, y),
        [(2, 1), p, partial(3)],
        [p, p, c],
        divided=NONE,
    )
    rows.add(
        "Reshape ExpandDims Squeeze Transpose",
        lambda x: (
            tf.reshape(x, [3, 2]),
            tf.reshape(x, [-1]),
            x[None],
            tf.squeeze(tf.expand_dims(x, 1), 1),
            tf.transpose(x),
        ),
        [p],
    )
    rows.add(
        "Sum Mean",
        lambda x: (tf.reduce_sum(x, 1), tf.reduce_mean(x), tf.reduce_mean(x, 0, keepdims=True)),
        [p],
    )
    rows.add("Max Prod", lambda x: (tf.reduce_max(x, 1), tf.reduce_prod(x)), [p], divided=NONE)
    rows.add(
        "StridedSlice Slice Split Unpack",
        lambda x: (
            x[:, 1:],
            x[0],
            tf.slice(x, [0, 1], [2, 1]),
            tf.split(x, 3, 1),
            tf.split(x, [1, 2], 1),
            tf.unstack(x, axis=1),
        ),
        [p],
    )
    rows.add(
        "Pack ConcatV2",
        lambda x, y: (tf.stack([x, y], 1), tf.concat([x, y], 1)),
        [p, p],
        [p, c],
        [c, p],
    )
    rows.add(
        "Shape Size Rank",
        lambda x: (tf.raw_ops.Shape(input=x), tf.raw_ops.Size(input=x), tf.raw_ops.Rank(input=x)),
        [p],
    )
    rows.add(
        "Pad Tile Cumsum",
        lambda x: (tf.pad(x, [[0, 1], [0, 0]]), tf.tile(x, [1, 2]), tf.cumsum(x)),
        [p],
        divided=NONE,
    )
    return rows
