"""Reductions, products and random numbers."""

import numpy as np
import tensorflow as tf
from rule_harness import NONE, SOME, B, Table, as_complex, bools, ints, raw


def reductions():
    """Return rows of reductions."""
    rows = Table()
    quick = {"batches": False, "static": False}
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

    def variances(x):
        _, variance = tf.nn.moments(
            x[:, : tf.cast(tf.reduce_max(tf.abs(x)), "int32") + 1], [0], keepdims=True
        )
        return [
            tf.identity(variance),
            tf.shape(variance),
            variance * x[:1, :1],
            *tf.nn.moments(x, [0, 2], keepdims=True),
        ]

    rows.add("kernel:moments", variances, [(B, 3, 2)], divided=SOME, empty=False)

    for kind, keep in (("Sum", False), ("Mean", True), ("Max", False)):
        rows.add(kind, all_axes(kind, keep), *shapes)
    for kind, keep in (("Sum", True), ("Mean", False), ("Min", True), ("Prod", False)):
        rows.add(kind, all_axes(kind, keep), *shapes[:2], **quick)
    for kind in ("All", "Any"):
        rows.add(kind, all_axes(kind, True), [bools(B, 3)], [bools(2, B)], **quick)
    for kind in ("Sum", "Max", "Min", "Prod"):
        rows.add(kind, all_axes(kind, False), [ints(B, 3)], [ints(2, B)], **quick)
    rows.add(  # the number of rows is a maximum, and the axes are computed; inputs are gathered
        "Sum Tanh",
        lambda x: tf.vectorized_map(lambda row: tf.reduce_sum(tf.tanh(row), 0), x),
        [(B, 3)],
        [(B, 2, 3)],
        divided=SOME,
        gradients=True,
        batches=False,
    )
    rows.add("Mean", lambda x: tf.reduce_mean(x, [1]), [ints(B, 3)])
    rows.add("Mean", lambda x: tf.reduce_mean(x), [ints(B, 3)], divided=NONE, empty=False)
    rows.add(
        "Mean",
        lambda x: tf.reduce_mean(tf.cast(x, "float16") * 3e4 + 3e4),
        [ints(B, 200)],
        empty=False,
        tolerance=1e-3,
    )
    rows.add(
        "Sum Mean",
        lambda x: (tf.reduce_sum(as_complex(x), 0), tf.reduce_mean(as_complex(x), 1)),
        [(B, 3)],
    )
    rows.add(
        "Mean Sum",
        lambda x: (tf.reduce_mean(x), tf.reduce_sum(x, 0), tf.reduce_mean(x, 1)),
        *shapes[:3],
        gradients=True,
    )
    moments = [([0], [(B, 3)]), ([0, 1], [(B, 2, 3)]), ([1], [(2, B)]), ([0, 2], [(B, 2, 3)])]
    for axes, inputs in moments:
        rows.add(
            "kernel:moments",
            lambda x, axes=axes: tf.nn.moments(x, axes, keepdims=len(axes) > 1),
            inputs,
            gradients=True,
        )
    rows.add(
        "kernel:moments",
        lambda x: tf.nn.moments(tf.boolean_mask(x, x[:, 0] > 0), [0]),
        [(B, 3)],
        batches=False,
        static=False,
    )
    rows.add("L2Loss", raw("L2Loss"), [(B, 3)], [(2, B)], gradients=True)
    for kind in ("ArgMax", "ArgMin"):
        rows.add(
            kind, lambda x, kind=kind: [raw(kind)(x, 1), raw(kind)(x, -1)], [(B, 3)], [(B, 2, 3)]
        )
        rows.add(kind, lambda x, kind=kind: raw(kind)(x, 0), [(2, B)], [(2, 3, B)])
        rows.add(kind, lambda x, kind=kind: raw(kind)(x, 0), [(B, 3)], divided=NONE, empty=False)
    for kind in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        rows.add(
            kind,
            lambda x, kind=kind: [raw(kind)(x, 1), raw(kind, exclusive=True, reverse=True)(x, -1)],
            [(B, 3)],
            [(B, 3, 2)],
        )
        rows.add(kind, lambda x, kind=kind: raw(kind)(x, 0), [(2, B)])
        rows.add(kind, lambda x, kind=kind: raw(kind)(x, 0), [(B, 3)], divided=NONE)
    rows.add("ReverseV2", lambda x: [tf.reverse(x, [-1]), tf.reverse(x, [1, 2])], [(B, 2, 3)])
    rows.add("ReverseV2", lambda x: tf.reverse(x, [0]), [(2, B)])
    rows.add("ReverseV2", lambda x: tf.reverse(x, [0, 1]), [(B, 2)], divided=NONE)
    rows.add(
        "Roll",
        lambda x: [tf.roll(x, 1, 1), tf.roll(x, [1, -1], [-1, 1])],
        [(B, 3, 4)],
        batches=True,
        gradients=True,
    )
    rows.add("Roll", lambda x: tf.roll(x, 1, 0), [(B, 3)], divided=NONE)
    return rows


def contractions():
    """Return rows of products."""
    rows = Table()

    def product(kind, inputs, names):
        rows.add(kind, raw(kind, **names), *inputs, static=False)

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
            product("BatchMatMulV2", batch[4:8] if a or b else batch, names)
    product("BatchMatMulV3", batch[:3], {"adj_x": True, "adj_y": True, "Tout": "float64"})
    rows.add(
        "MatMul",
        lambda x, w: tf.matmul(tf.sin(x), w),
        [(B, 3), (3, 4)],
        [(2, B), (B, 4)],
        gradients=True,
    )
    rows.add(
        "BatchMatMulV2",
        lambda x, w: tf.matmul(tf.sin(x), w),
        [(B, 2, 3), (B, 3, 4)],
        [(B, 2, 3), (3, 4)],
        [(B, 2, 3), (1, 3, 4)],
        mixed=False,
        gradients=True,
    )
    rows.add(
        "MatMul",
        lambda x, y: tf.matmul(x, y, transpose_b=True),
        [(B, 3), (B, 3)],
        divided=NONE,
        batches=False,
    )

    def of_unknown_sizes(x):
        """Multiply by matrices of which only the step knows the sizes."""
        columns = tf.constant(np.arange(120.0).reshape(40, 3))
        part = tf.slice(columns, [0, 0], tf.stack([tf.shape(x)[0], -1]))
        width = tf.shape(part)[1]
        shape = tf.stack([-1, 1, width])
        product = x[:, None] * tf.reshape(part, shape)
        ones = tf.ones(tf.stack([3, width]), x.dtype)
        scores = tf.matmul(x, tf.reshape(columns, tf.stack([-1, width])), transpose_b=True)
        return (
            tf.reshape(product, tf.stack([-1, width])),
            tf.reshape(x @ ones, shape),
            tf.reshape(scores, [-1, 5, 8]),
        )

    rows.add("MatMul Mul Reshape", of_unknown_sizes, [(B, 3)], gradients=True, batches=False)
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
        rows.add(
            "Einsum",
            lambda *x, e=equation: tf.raw_ops.Einsum(inputs=list(x), equation=e),
            *inputs,
            gradients=True,
            static=False,
        )
    equations = {
        "...i,ij->...j": [[(B, 3), (3, 4)], [(B, 5, 3), (3, 4)], [(2, B, 3), (3, 4)]],
        "...ij,...jk->...ik": [[(B, 2, 3), (1, 3, 4)], [(5, B, 2, 3), (B, 3, 4)]],
        "...i->i...": [[(B, 2, 3)]],
        "b...i,b...i->b...": [[(B, 2, 3), (B, 3)]],
    }
    for equation, inputs in equations.items():
        rows.add(
            "Einsum Sum" if "," in equation else "Einsum",
            lambda *x, e=equation: tf.einsum(e, *x),
            *inputs,
            mixed=False,
            gradients=True,
        )
    return rows


def sampled_losses():
    """Return rows of losses of sampled classes, whose draws every replica gets from the first."""
    # Without a graph, the sampler draws other classes each time.
    rows = Table(static=False, batches=False, replicated=False, whole_in_graph=True)
    for loss in (tf.nn.nce_loss, tf.nn.sampled_softmax_loss):

        def of_samples(w, b, x, labels, loss=loss):
            w, b, x = (tf.cast(one, "float32") for one in (w, b, x))
            draws = tf.random.log_uniform_candidate_sampler(
                tf.cast(labels, "int64")[:, None], 1, 3, True, 8, seed=5
            )
            return loss(w, b, labels[:, None], x, 3, 8, sampled_values=draws)

        rows.add(
            "MatMul Reshape Slice",
            of_samples,
            [(8, 3), (8,), (B, 3), ints(B)],
            divided=SOME,
            gradients=True,
            empty=False,
            tolerance=1e-5,
        )
    return rows


def random():
    """Return rows of random numbers, which are the same as on one device."""
    rows = Table(divided=SOME)

    def shapes_of(x):
        n = tf.shape(x)[0]
        return [[n], [n, 3], tf.shape(x), [n, 4], [n * 2, 5], [n, 0], [2, n]]

    def draws(kind, dtype, options):
        draw = getattr(tf.raw_ops, f"Stateless{kind}")
        options = options or {"dtype": dtype}
        return lambda x: [draw(shape=s, seed=[3, 4], **options) for s in shapes_of(x)[:2]]

    def counted_draws(kind, dtype, options):
        draw = getattr(tf.raw_ops, f"Stateless{kind}V2")
        options = options or {"dtype": dtype}

        def make(x):
            key, counter = tf.constant([7], "uint64"), tf.constant([1, 2], "uint64")
            state = {"key": key, "counter": counter, "alg": 1}
            return [draw(shape=s, **state, **options) for s in shapes_of(x)]

        return make

    kinds = ["RandomNormal", "RandomUniform"]
    pairs = [(kind, dtype) for kind in kinds for dtype in ("float16", "float32", "float64")]
    pairs += [("TruncatedNormal", "float32")]
    kinds = ["RandomUniformFullInt", "RandomUniformInt"]
    pairs += [(kind, dtype) for kind in kinds for dtype in ("int32", "int64")]
    for kind, dtype in pairs:
        limits = {"minval": tf.constant(-9, dtype), "maxval": tf.constant(1000, dtype)}
        options = limits if kind.endswith("UniformInt") else {}
        quick = {"static": False, "batches": dtype == "float32"}
        rows.add(f"Stateless{kind}V2", counted_draws(kind, dtype, options), [(B, 3)], **quick)
        if dtype in ("float32", "int64"):
            quick["batches"] = False
            rows.add(f"Stateless{kind}", draws(kind, dtype, options), [(B, 3)], **quick)
    for rates in (0.5, [0.5, 1.5, 2.5]):  # of all values, and of each column

        def of_parameters(x, rates=rates):
            shape, rate = tf.stack([tf.shape(x)[0], 3]), tf.constant(rates, x.dtype)
            bounds = (rate - 1, rate + 1, rate - 2, rate + 2)
            return [
                tf.random.stateless_gamma(shape, [3, 4], rate, dtype=x.dtype),
                tf.raw_ops.StatelessRandomGammaV2(shape=shape, seed=[3, 4], alpha=rate),
                tf.random.stateless_poisson(shape, [3, 4], rate, x.dtype),
                tf.random.stateless_binomial(shape, [3, 4], rate * 4, rate / 4),
                tf.random.stateless_parameterized_truncated_normal(shape, [3, 4], *bounds),
            ]

        kinds = "GammaV3 StatelessRandomGammaV2 StatelessRandomPoisson StatelessRandomBinomial"
        types = f"StatelessRandom{kinds} StatelessParameterizedTruncatedNormal"
        rows.add(types, of_parameters, [(B, 3)], static=False, batches=False)

    def gamma(x, w):
        drawn = tf.random.stateless_gamma(tf.shape(x), [3, 4], tf.abs(x) + 0.5, dtype=x.dtype)
        return drawn @ w

    inputs = [(B, 3), (3, 2)]
    rows.add("MatMul", gamma, inputs, static=False, gradients=True)  # of all rows' parameters
    draw = lambda x: tf.random.stateless_categorical(x, 2, [3, 4])  # noqa: E731
    rows.add("GatherV2", lambda x, w: tf.gather(w, draw(x)), inputs, static=False)
    rows.add("StatelessMultinomial", draw, [(B, 3)], static=False, divided=NONE)
    return rows
