import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization
from kdist.layers.compiled_kernels import (
    SMALLEST_COMPILED_SAMPLE,
    _compiled_method,
    worth_compiling,
)
from replicas import assert_close, assert_equal, per_replica, stock_mirrored

STOCK = keras.layers.BatchNormalization
LARGE = (16, 16, 8)  # compiled by XLA on CPUs
SMALL = (4, 3, 2)


def oracle(xs, dys, *, axis=-1, masks=None, gamma=1.0, beta=0.0, epsilon=1e-3):
    """Batch norm over the replicas' inputs in float64, and its gradients, by the definition."""
    xs = [np.moveaxis(np.asarray(x, "float64"), axis, -1) for x in xs]
    dys = [np.moveaxis(np.asarray(dy, "float64"), axis, -1) for dy in dys]
    if masks is None:
        keeps = [np.ones(x.shape) for x in xs]
    else:  # over the layer's inputs, so before the channels are moved
        keeps = [
            np.moveaxis(
                np.broadcast_to(m[..., None], np.moveaxis(x, -1, axis).shape), axis, -1
            ).astype("float64")
            for m, x in zip(masks, xs, strict=True)
        ]
    axes = tuple(range(xs[0].ndim - 1))
    count = sum(k.sum(axes) for k in keeps)
    n = np.maximum(count, 1)
    mean = sum((x * k).sum(axes) for x, k in zip(xs, keeps, strict=True)) / n
    variance = sum((np.square(x - mean) * k).sum(axes) for x, k in zip(xs, keeps, strict=True)) / n
    deviation = np.sqrt(variance + epsilon)
    hats = [(x - mean) / deviation for x in xs]
    dbeta = sum(dy.sum(axes) for dy in dys)
    dgamma = sum((dy * h).sum(axes) for dy, h in zip(dys, hats, strict=True))
    dxs = [
        gamma / deviation * (dy - k * (dbeta + h * dgamma) / n)
        for dy, h, k in zip(dys, hats, keeps, strict=True)
    ]
    return {
        "y": [np.moveaxis(gamma * h + beta, -1, axis) for h in hats],
        "dx": [np.moveaxis(dx, -1, axis) for dx in dxs],
        "dgamma": [dgamma],
        "dbeta": [dbeta],
        "mean": mean,
        "variance": variance,
        "count": count,
    }


def strategy(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    return kdist.MirroredStrategy(replicas=replicas)


def local(distributed, value):
    return [np.asarray(v) for v in distributed.experimental_local_results(value)]


def copies(variable):
    """A variable's value on every replica."""
    return [v.numpy() for v in getattr(variable.value, "values", [variable.value])]


def train(make, xs, dys, masks=None, *, compiled=None):
    """Return the results of a training call, with a replica for each of `xs`, and the layer."""
    distributed = strategy(len(xs))
    with distributed.scope():
        layer = make()
        layer.build((None, *xs[0].shape[1:]))

    def step(x, dy, mask=None):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask)
        weights = [w.value for w in (layer.gamma, layer.beta) if w is not None]
        return y, *tape.gradient(y, [x, *weights], output_gradients=dy)

    @tf.function(jit_compile=compiled)
    def run(*args):
        return distributed.run(step, args)

    args = [per_replica(distributed, v) for v in (xs, dys, masks) if v is not None]
    names = ["y", "dx", *["dgamma"] * layer.scale, *["dbeta"] * layer.center]
    result = {name: local(distributed, v) for name, v in zip(names, run(*args), strict=True)}
    return result, layer


def data(sizes, sample, *, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    xs = [(rng.normal(size=(n, *sample)) * 3 + 2).astype(dtype) for n in sizes]
    return xs, [rng.normal(size=x.shape).astype(dtype) for x in xs]


def check(result, layer, expected, *, tolerance, momentum=0.99):
    for name, values in result.items():  # a single row of the batch is on all replicas
        value, right = (np.concatenate(each) for each in (values, expected[name]))
        np.testing.assert_allclose(value, right, rtol=tolerance, atol=tolerance, err_msg=name)
    some = expected["count"] > 0
    mean = np.where(some, expected["mean"] * (1 - momentum), 0)
    variance = np.where(some, momentum + expected["variance"] * (1 - momentum), 1)
    for variable, right in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        for copy in copies(variable):
            np.testing.assert_allclose(copy, right, rtol=tolerance, atol=tolerance)
            np.testing.assert_array_equal(copy, copies(variable)[0])


# Numbers of samples on the replicas, their shape, and what is special.
GLOBAL_BATCHES = [
    *[(sizes, SMALL, {}) for sizes in ((6,), (5, 2), (0, 0, 2), (1, 1))],
    *[(sizes, LARGE, {}) for sizes in ((6,), (4, 1, 0))],
    ((4, 4), SMALL, {"apart": 1000.0}),
    *[
        (sizes, sample, {"axis": axis, "dtype": dtype})
        for axis, *samples in ((-1, (5,), (2, 3, 2, 4)), *((a, (4, 3), (3, 4, 2)) for a in (1, 2)))
        for sample in samples
        for sizes, dtype in (((6,), "float32"), ((5, 3), "float64"))
    ],
    *[(sizes, (3, 2), {"kept": 0.6}) for sizes in ((8,), (3, 0, 2))],
    *[(sizes, (512, 4), {"kept": 0.6}) for sizes in ((8,), (4, 3))],
    *[(sizes, (3, 2), {"kept": 0.0}) for sizes in ((3,), (3, 2))],
    *[
        (sizes, sample, {"dtype": dtype})
        for sizes in ((0,), (0, 0))
        for sample, dtype in ((SMALL, "float32"), (SMALL, "float64"), (LARGE, "float32"))
    ],
]


@pytest.mark.parametrize(("sizes", "sample", "options"), GLOBAL_BATCHES, ids=str)
def test_statistics_and_gradients_are_those_of_the_global_batch(sizes, sample, options):
    """Replicas may be far apart, or empty, and masks may hide positions."""
    axis, dtype = options.get("axis", -1), options.get("dtype", "float64")
    xs, dys = data(sizes, sample, dtype=dtype)
    xs[-1] += options.get("apart", 0)
    masks, rng = None, np.random.default_rng(1)
    if "kept" in options:
        masks = [rng.random((n, *sample[:-1])) < options["kept"] for n in sizes]
    result, layer = train(lambda: SyncBatchNormalization(axis=axis, dtype=dtype), xs, dys, masks)
    tolerance = 0 if not sum(sizes) else 1e-9 if dtype == "float64" else 2e-4
    check(result, layer, oracle(xs, dys, masks=masks, axis=axis), tolerance=tolerance)


def test_mask_over_channels():
    """With channels first, a mask may hide different positions in different channels."""
    xs, dys = data((4, 3), (3, 5))
    masks = [np.random.default_rng(1).random((n, 3)) < 0.7 for n in (4, 3)]
    masks[1][:, 2] = masks[0][:, 2] = False
    make = lambda: SyncBatchNormalization(axis=1, dtype="float64")  # noqa: E731
    result, layer = train(make, xs, dys, masks)
    check(result, layer, oracle(xs, dys, masks=masks, axis=1), tolerance=1e-9)


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    scale=st.booleans(),
    center=st.booleans(),
    momentum=st.floats(0, 1),
    epsilon=st.floats(1e-6, 0.1),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_options(sizes, scale, center, momentum, epsilon, masked, seed):
    xs, dys = data(sizes, (3, 2), seed=seed)
    rng = np.random.default_rng(seed)
    masks = [rng.random((n, 3)) < 0.5 for n in sizes] if masked else None
    gamma = rng.normal(size=2) if scale else np.ones(2)
    beta = rng.normal(size=2) if center else np.zeros(2)

    def make():
        return SyncBatchNormalization(
            momentum=momentum,
            epsilon=epsilon,
            scale=scale,
            center=center,
            gamma_initializer=keras.initializers.Constant(gamma),
            beta_initializer=keras.initializers.Constant(beta),
            dtype="float64",
        )

    result, layer = train(make, xs, dys, masks)
    expected = oracle(xs, dys, masks=masks, gamma=gamma, beta=beta, epsilon=epsilon)
    check(result, layer, expected, tolerance=1e-9, momentum=momentum)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("count", "sample", "ratio", "tolerance"),
    [
        (12, (7, 5, 4), 1e4, 1e-3),
        (12, LARGE, -1e4, 1e-3),
        # Half a million values a channel: adding them up one by one would lose the mean.
        (64, (90, 90, 2), 1e4, 1e-2),
    ],
)
def test_variance_where_the_mean_is_large(replicas, count, sample, ratio, tolerance):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(count, *sample)) + ratio).astype("float32")
    xs = np.split(x, [count * 2 // 3]) if replicas == 2 else [x]
    _, layer = train(lambda: SyncBatchNormalization(momentum=0.0), xs, xs)
    right = x.astype("float64").var((0, 1, 2))
    np.testing.assert_allclose(layer.moving_variance, right, rtol=tolerance)


@pytest.mark.parametrize(
    ("sizes", "sample", "compiled"),
    [
        ((128,), (28, 28, 16), False),
        ((128,), (28, 28, 10), False),
        ((16,), (16, 16, 16, 8), False),
        ((128,), (28, 28, 16), True),
        ((64, 64), (28, 28, 16), False),
    ],
)
def test_gradients_of_many_values_keep_float32s_digits(sizes, sample, compiled):
    """65,000 values a channel and more, and gradients that do not cancel out."""
    xs, dys = data(sizes, sample, dtype="float32")
    dys = [dy + 10 for dy in dys]
    result, _ = train(SyncBatchNormalization, xs, dys, compiled=compiled)
    expected = oracle(xs, dys)
    for name in ("dx", "dbeta"):
        value, right = (np.concatenate(part[name]) for part in (result, expected))
        np.testing.assert_allclose(value, right, atol=2e-6 * np.abs(right).max(), err_msg=name)
    # A sum of products of about 10 that nearly cancel: exact to 3e-7 of the addends.
    addends = 10 * sum(x.size for x in xs) / sample[-1]
    assert_close(result["dgamma"], expected["dgamma"], atol=3e-7 * addends)


@pytest.mark.parametrize("sizes", [(6,), (4, 2)])
@pytest.mark.parametrize(
    "sample",
    [
        LARGE,
        (2048,),
        (16, 16, 10),
        *(pytest.param(sample, marks=pytest.mark.slow) for sample in ((70, 32), (8, 8, 4, 8))),
    ],
)
@pytest.mark.parametrize(
    ("gamma", "beta", "epsilon"), [(0.5, -2.0, 1e-2), (None, 3.0, 1e-7), (-1.5, None, 1e-3)]
)
def test_options_of_large_samples_in_float32(sizes, sample, gamma, beta, epsilon):
    xs, dys = data(sizes, sample, dtype="float32")
    options = {"scale": gamma is not None, "center": beta is not None, "epsilon": epsilon}
    for name, value in (("gamma", gamma), ("beta", beta)):
        if value is not None:
            options[f"{name}_initializer"] = keras.initializers.Constant(value)
    result, layer = train(lambda: SyncBatchNormalization(**options), xs, dys)
    gamma, beta = (1.0 if gamma is None else gamma), (beta or 0.0)
    expected = oracle(xs, dys, gamma=gamma, beta=beta, epsilon=epsilon)
    for name, values in result.items():
        scale = max(np.abs(right).max() for right in expected[name])
        assert_close(values, expected[name], atol=3e-5 * scale, err_msg=name)


@pytest.mark.parametrize("sizes", [(6,), (4, 2)])
def test_gradients_of_gathered_outputs(sizes):
    """The gradient then comes as indexed slices."""
    xs, dys = data(sizes, LARGE, dtype="float32")
    distributed = strategy(len(sizes))
    with distributed.scope():
        layer = SyncBatchNormalization()
        layer.build((None, *LARGE))

    def step(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            some = tf.gather(layer(x, training=True), [1])
        return tape.gradient(some, x, output_gradients=dy[1:2])

    run = tf.function(lambda x, dy: distributed.run(step, (x, dy)))
    got = local(distributed, run(per_replica(distributed, xs), per_replica(distributed, dys)))
    chosen = [np.zeros_like(dy) for dy in dys]
    chosen[0][1] = dys[0][1]  # of the global batch
    assert_close(got, oracle(xs, chosen)["dx"], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "bfloat16"])
@pytest.mark.parametrize(("sizes", "sample"), [((6,), SMALL), ((4, 2), SMALL), ((6,), LARGE)])
def test_half_precision_has_float32_statistics(policy, sizes, sample):
    dtype = policy.removeprefix("mixed_")
    xs, dys = data(sizes, sample, dtype="float32")
    # Squares beyond float16's 65504.
    xs = [np.asarray(tf.cast(x * 100 + 500, dtype)) for x in xs]
    dys = [np.asarray(tf.cast(dy, dtype)) for dy in dys]
    make = lambda: SyncBatchNormalization(momentum=0.0, dtype=policy)  # noqa: E731
    result, layer = train(make, xs, dys)
    expected = oracle(xs, dys)
    assert {v.dtype.name for v in (*result["y"], *result["dx"])} == {dtype}
    step = 2**-10 if dtype == "float16" else 2**-7
    for name in ("y", "dx"):
        for value, right in zip(result[name], expected[name], strict=True):
            scale = np.abs(right).max()
            assert np.abs(value.astype("float64") - right).max() < 2 * step * scale, name
    tolerance = 1e-4 if policy.startswith("mixed") else step
    if policy != "float16":  # whose variables cannot hold this variance
        np.testing.assert_allclose(
            layer.moving_variance.numpy().astype("float64"), expected["variance"], rtol=tolerance
        )


@pytest.mark.parametrize(
    ("sample", "epsilon"),
    [
        *[
            (sample, 1e-3)
            for sample in ((5,), (7, 3), SMALL, (2048,), (70, 32), LARGE, (3, 2, 2, 4))
        ],
        ((7, 3), 1e-7),  # too small for the fused kernel
    ],
)
def test_a_single_replica_equals_stock_keras(sample, epsilon):
    xs, dys = data((9,), sample, dtype="float32")
    options = {"epsilon": epsilon, "momentum": 0.9}
    ours, our_layer = train(lambda: SyncBatchNormalization(**options), xs, dys)
    stock, stock_layer = train(lambda: STOCK(**options), xs, dys)
    for name in stock:
        scale = np.abs(stock[name][0]).max()
        np.testing.assert_allclose(ours[name][0], stock[name][0], atol=3e-6 * scale, err_msg=name)
    assert_close(our_layer.get_weights(), stock_layer.get_weights(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("training", "trainable"), [(False, True), (True, False), (None, True)])
def test_inference(replicas, training, trainable):
    distributed = strategy(replicas)
    with distributed.scope():
        layer = SyncBatchNormalization(trainable=trainable)
        layer.build((None, 3))
        weights = [np.full(3, v, "float32") for v in (2.0, 3.0, 4.0, 5.0)]
        order = [layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance]
        for variable, value in zip(order, weights, strict=True):
            variable.assign(value)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    y = distributed.run(lambda: layer(tf.constant(x), training=training))
    expected = 2 * (x - 4) / np.sqrt(5 + 1e-3) + 3
    for value in local(distributed, y):
        np.testing.assert_allclose(value, expected, atol=1e-6)
    for variable, value in zip(order, weights, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_two_layers_run_under_one_strategy():
    """Their sums, forward and backward, meet each other in one order."""
    xs, _ = data((3, 2), (4,), dtype="float32")
    distributed = strategy(2)

    def made():
        layers = [SyncBatchNormalization() for _ in range(3)]
        for layer in layers:
            layer.build((None, 4))
        return layers

    def step(x, layers):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for layer in layers:
                y = tf.tanh(layer(y, training=True))
        return tape.gradient(y, x)

    with distributed.scope():
        layers = made()
    run = tf.function(lambda x: distributed.run(step, (x, layers)))
    parts = local(distributed, run(per_replica(distributed, xs)))
    expected = step(tf.constant(np.concatenate(xs)), made())
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-5)


def test_eager_replicas():
    xs, _ = data((3, 2), (4,))
    distributed = strategy(2)
    with distributed.scope():
        layer = SyncBatchNormalization(dtype="float64")
        layer.build((None, 4))

    y = distributed.run(lambda x: layer(x, training=True), (per_replica(distributed, xs),))
    right = np.concatenate(oracle(xs, xs)["y"])
    np.testing.assert_allclose(np.concatenate(local(distributed, y)), right, rtol=1e-9)


def test_under_another_strategy_it_is_keras_layer():
    xs, _ = data((3, 2), SMALL, dtype="float32")
    distributed = stock_mirrored()

    def outputs_and_weights(make):
        with distributed.scope():
            layer = make()
            layer.build((None, *SMALL))
        run = tf.function(lambda x: distributed.run(lambda x: layer(x, training=True), (x,)))
        return [*local(distributed, run(per_replica(distributed, xs))), *layer.get_weights()]

    theirs = outputs_and_weights(lambda: STOCK(synchronized=True))
    assert_equal(outputs_and_weights(SyncBatchNormalization), theirs)


def test_under_another_strategy_a_mask_is_refused():
    """Keras would take the statistics of each replica alone."""
    distributed = stock_mirrored()
    with distributed.scope():
        layer = SyncBatchNormalization()
        layer.build((None, 3))
    x = np.ones((4, 3), "float32")
    run = tf.function(lambda: distributed.run(lambda: layer(x, training=True, mask=x[:, 0] > 0)))
    with pytest.raises(UserError, match=r"received a mask .* use kdist\.MirroredStrategy"):
        run()


def test_functional_model_under_a_strategy(tmp_path):
    distributed = strategy(2)
    with distributed.scope():
        inputs = keras.Input((4,))
        outputs = keras.layers.Dense(1)(SyncBatchNormalization(momentum=0.5, name="norm")(inputs))
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse", jit_compile=False)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32") + 3
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    layer = model.layers[1]
    np.testing.assert_allclose(layer.moving_mean.numpy(), x.mean(0) / 2, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.layers[1]) is SyncBatchNormalization
    np.testing.assert_allclose(
        again.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-5, atol=1e-6
    )
    stock = STOCK()
    stock.build((None, 4))
    stock.set_weights(layer.get_weights())
    np.testing.assert_allclose(stock(x), layer(x), rtol=1e-6)
    # Weights loaded under the strategy reach every replica.
    with distributed.scope():
        layer.set_weights([np.full(4, float(i), "float32") for i in range(4)])
    assert [c.tolist() for c in copies(layer.moving_mean)] == [[2.0] * 4] * 2


def test_configuration():
    layer = SyncBatchNormalization(1, momentum=0.9, epsilon=1e-5, scale=False)
    config = layer.get_config()
    assert config["synchronized"] is True
    assert not [key for key in config if key.startswith("renorm")]
    again = SyncBatchNormalization.from_config(config)
    assert again.get_config() == config
    # Both directions of a conversion.
    assert STOCK.from_config(config).momentum == 0.9
    theirs = {**STOCK(axis=1).get_config(), "synchronized": True}
    assert SyncBatchNormalization.from_config(theirs).axis == 1
    assert keras.saving.get_registered_name(SyncBatchNormalization) == (
        "kdist>SyncBatchNormalization"
    )


@pytest.mark.parametrize("wrong", [{"renorm": True}, {"synchronized": False}])
def test_wrong_arguments(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        SyncBatchNormalization(**wrong)


def test_wrong_mask():
    with pytest.raises(UserError, match="one dimension less"):
        SyncBatchNormalization()(np.ones((2, 3)), training=True, mask=np.ones((2, 3), bool))


def gradient_and_hessian_product(layer, x, v):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.math.sin(layer(x, training=True)))
        first = inner.gradient(y, x)
        product = tf.reduce_sum(first * v)
    return first, outer.gradient(product, x)


def test_second_derivative_on_one_replica():
    layer = SyncBatchNormalization(dtype="float64")
    (x,), (v,) = (tuple(map(tf.constant, values)) for values in data((5,), (4,)))
    step = 1e-5
    above, _ = gradient_and_hessian_product(layer, x + step * v, v)
    below, _ = gradient_and_hessian_product(layer, x - step * v, v)
    _, product = gradient_and_hessian_product(layer, x, v)
    np.testing.assert_allclose(product, (above - below) / (2 * step), atol=1e-8)


def test_second_derivative_of_the_compiled_layer_is_refused():
    x = tf.constant(data((2,), LARGE, dtype="float32")[0][0])
    with pytest.raises(LookupError, match="no second derivative"):
        gradient_and_hessian_product(SyncBatchNormalization(), x, x)


def test_large_samples_of_known_shape_are_compiled():
    def spec(*shape):
        return tf.TensorSpec((None, *shape))

    assert worth_compiling(spec(*LARGE))
    assert worth_compiling(spec(SMALLEST_COMPILED_SAMPLE))
    assert not worth_compiling(spec(*SMALL))
    assert not worth_compiling(spec(None, None, 64))


def test_layers_of_one_shape_share_the_compiled_functions():
    x = data((2,), LARGE, dtype="float32")[0][0]
    _compiled_method.cache_clear()
    SyncBatchNormalization()(x, training=True)
    before = _compiled_method.cache_info().misses
    SyncBatchNormalization()(x[:1], training=True)
    assert _compiled_method.cache_info().misses == before


@pytest.mark.parametrize("constant", [255.0, 1001.0, 65535.0])
def test_moments_of_a_constant_are_exact(constant):
    """Replicas have different numbers of values that count."""

    def make_model():
        norm = kdist.layers.SyncBatchNormalization(momentum=0.0)
        return keras.Sequential([keras.Input((5, 2)), keras.layers.Masking(0.0), norm])

    x = np.full((8, 5, 2), constant, "float32")
    for row in range(8):
        x[row, : row % 5] = 0  # masked
    model = kdist.MirroredStrategy(replicas=2, shards=8).build(make_model)
    model.compile("sgd", "mse")
    model.fit(x, np.zeros_like(x), batch_size=8, verbose=0, shuffle=False)
    norm = model.layers[-1]
    np.testing.assert_array_equal(norm.moving_mean.numpy(), [constant] * 2)
    np.testing.assert_array_equal(norm.moving_variance.numpy(), [0, 0])
