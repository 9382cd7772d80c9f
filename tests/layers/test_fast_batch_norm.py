"""Batch norm in a step that is divided over replicas, beside Keras's on one device."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.layers import SyncBatchNormalization
from replicas import assert_close, assert_equal, per_replica, stock_mirrored

KERAS = keras.layers.BatchNormalization
SMALL = (4, 3, 2)


def concatenated(distributed, value):
    parts = distributed.experimental_local_results(value)
    return np.concatenate([np.asarray(tf.cast(part, "float64")) for part in parts])


def batch(sizes, sample, *, dtype="float64", seed=0):
    """Return each replica's inputs, and the gradients of its outputs."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    x, dy = rng.normal(size=(2, count, *sample))
    ends = np.cumsum(sizes)[:-1]
    return [np.split(np.asarray(tf.cast(value, dtype)), ends) for value in (x * 3 + 2, dy)]


def train(distributed, make, xs, dys, masks=None):
    """Return outputs, gradients and weights after a training call, with a part for each replica."""
    with distributed.scope():
        layer = make()
        layer.build((None, *xs[0].shape[1:]))

    def step(x, dy, mask=None):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, mask=mask)
        return y, tape.gradient(y, [x, *layer.trainable_weights], output_gradients=dy)

    args = [per_replica(distributed, parts) for parts in (xs, dys, masks) if parts is not None]
    y, (dx, *gradients) = tf.function(lambda *args: distributed.run(step, args))(*args)
    firsts = [distributed.experimental_local_results(value)[0].numpy() for value in gradients]
    copies = [distributed.experimental_local_results(w.value) for w in layer.weights]
    for copy, *others in copies:
        assert_equal(others, [copy] * len(others))
    statistics = {w.name: copy[0].numpy() for w, copy in zip(layer.weights, copies, strict=True)}
    return {
        "outputs": concatenated(distributed, y),
        "input gradient": concatenated(distributed, dx),
        **{f"gradient {at}": value for at, value in enumerate(firsts)},
        **statistics,
    }


def check(make, xs, dys, masks=None, *, tolerance, replicas=None, oracle=None):
    """Compare a layer under kdist's strategy with the layer, or another, on one device."""
    strategy = kdist.MirroredStrategy(replicas=replicas or len(xs))
    ours = train(strategy, make, xs, dys, masks)
    whole = [None if part is None else [np.concatenate(part)] for part in (xs, dys, masks)]
    plain = train(tf.distribute.get_strategy(), oracle or make, *whole)
    assert ours.keys() == plain.keys()
    for name, value in plain.items():
        scale = max(np.abs(value).max(initial=0), 1)
        assert_close(ours[name], value, atol=tolerance * scale, err_msg=name)


# Replicas may be empty, and have the samples of other classes.
SIZES = [(6,), (5, 2), (0, 2), (4, 1, 0), (1, 1)]
SHAPES = [(5,), (7, 3), SMALL, (16, 16, 8), (2, 3, 2, 4)]


TOLERANCES = {"float32": 2e-5, "float64": 1e-9}


@pytest.mark.parametrize(
    ("sample", "dtype"),
    [*((sample, "float64") for sample in SHAPES), ((16, 16, 8), "float32"), ((5,), "float32")],
    ids=str,
)
def test_batches_of_any_rank(sample, dtype):
    for sizes in ((5, 2), (4, 1, 0)):
        xs, dys = batch(sizes, sample, dtype=dtype)
        check(lambda: KERAS(dtype=dtype), xs, dys, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_batches_of_any_sizes(dtype):
    for sizes in SIZES:
        xs, dys = batch(sizes, SMALL, dtype=dtype)
        check(lambda: KERAS(dtype=dtype), xs, dys, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("axis", [1, 2])
def test_channels_first(axis):
    xs, dys = batch((5, 3), (3, 4, 2))
    check(lambda: KERAS(axis=axis, dtype="float64"), xs, dys, tolerance=1e-9)


@settings(max_examples=6, deadline=None)
@given(
    scale=st.booleans(),
    center=st.booleans(),
    momentum=st.floats(0, 1),
    epsilon=st.floats(1e-7, 0.1),
    masked=st.booleans(),
    renorm=st.booleans(),
    seed=st.integers(0, 99),
)
def test_options(scale, center, momentum, epsilon, masked, renorm, seed):
    xs, dys = batch((4, 3), (3, 2), seed=seed)
    rng = np.random.default_rng(seed)
    masks = [rng.random((len(x), 3)) < 0.5 for x in xs] if masked else None

    def make():
        return KERAS(
            momentum=momentum,
            epsilon=epsilon,
            scale=scale,
            center=center,
            renorm=renorm,
            gamma_initializer=keras.initializers.RandomUniform(0.5, 2, seed=seed),
            beta_initializer=keras.initializers.RandomUniform(-1, 1, seed=seed),
            dtype="float64",
        )

    check(make, xs, dys, masks, tolerance=1e-9)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "bfloat16"])
def test_half_precision_has_float32_statistics(policy):
    dtype = policy.removeprefix("mixed_")
    xs, dys = batch((4, 2), SMALL, dtype=dtype)
    step = 2**-10 if dtype == "float16" else 2**-7
    check(lambda: KERAS(dtype=policy), xs, dys, tolerance=2 * step)


def test_gradient_of_gathered_outputs():
    """The gradient comes as indexed slices."""
    x = np.concatenate(batch((6,), SMALL)[0][:1]).astype("float64")

    def gradient(distributed):
        with distributed.scope():
            layer = KERAS(dtype="float64")
            layer.build((None, *SMALL))

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                some = tf.gather(layer(x, training=True), [1])
            return tape.gradient(some, x)

        parts = np.split(x, distributed.num_replicas_in_sync)
        run = tf.function(lambda x: distributed.run(step, (x,)))
        return concatenated(distributed, run(per_replica(distributed, parts)))

    plain = gradient(tf.distribute.get_strategy())
    np.testing.assert_allclose(gradient(kdist.MirroredStrategy(replicas=2)), plain, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_second_derivative(dtype, tolerance):
    """As of a gradient penalty."""
    x, v = (np.concatenate(part) for part in batch((6,), SMALL, dtype=dtype))

    def gradients(distributed):
        with distributed.scope():
            layer = KERAS(dtype=dtype, gamma_initializer="random_normal")
            layer.build((None, *SMALL))
            layer.gamma.assign([0.7, -1.3])

        def step(x, v):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = tf.reduce_sum(tf.sin(layer(x, training=True)))
                first = inner.gradient(y, [x, layer.gamma.value, layer.beta.value])
                product = sum(tf.reduce_sum(g * g) for g in first) + tf.reduce_sum(first[0] * v)
            return outer.gradient(product, [x, layer.gamma.value, layer.beta.value])

        args = [
            per_replica(distributed, np.split(value, distributed.num_replicas_in_sync))
            for value in (x, v)
        ]
        dx, *of_weights = tf.function(lambda *args: distributed.run(step, args))(*args)
        weights = [distributed.experimental_local_results(g)[0].numpy() for g in of_weights]
        return [concatenated(distributed, dx), *weights]

    plain = gradients(tf.distribute.get_strategy())
    for ours, right in zip(gradients(kdist.MirroredStrategy(replicas=2)), plain, strict=True):
        assert_close(ours, right, atol=tolerance * np.abs(right).max())


class OwnMoments(KERAS):
    """Takes the statistics of half of the channels' values."""

    def _moments(self, inputs, mask):
        return super()._moments(inputs * 0.5, mask)


def test_a_layer_with_statistics_of_its_own():
    xs, dys = batch((4, 3), (3, 2))
    check(lambda: OwnMoments(dtype="float64"), xs, dys, tolerance=1e-9)


@pytest.mark.parametrize(("training", "trainable"), [(False, True), (True, False), (None, True)])
def test_inference(training, trainable):
    distributed = kdist.MirroredStrategy(replicas=2)
    with distributed.scope():
        layer = KERAS(trainable=trainable)
        layer.build((None, 3))
        layer.set_weights([np.full(3, value, "float32") for value in (2.0, 3.0, 4.0, 5.0)])
    before = layer.get_weights()
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    y = distributed.run(lambda: layer(tf.constant(x), training=training))
    expected = 2 * (x - 4) / np.sqrt(5 + 1e-3) + 3
    for value in distributed.experimental_local_results(y):
        np.testing.assert_allclose(value, expected, atol=1e-6)
    assert_equal(layer.get_weights(), before)


def test_the_synchronized_layer_under_tensorflows_strategy():
    xs, dys = batch((3, 2), SMALL, dtype="float32")
    theirs = train(stock_mirrored(), lambda: KERAS(synchronized=True), xs, dys)
    ours = train(stock_mirrored(), SyncBatchNormalization, xs, dys)
    assert_equal(list(ours.values()), list(theirs.values()))


def test_files_of_the_synchronized_layer(tmp_path):
    layer = SyncBatchNormalization(1, momentum=0.9, scale=False, synchronized=False)
    assert layer.synchronized
    assert SyncBatchNormalization.from_config(layer.get_config()).get_config() == layer.get_config()
    model = keras.Sequential([keras.Input((4,)), layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[0]) is SyncBatchNormalization


def test_ragged_rows():
    rows = tf.RaggedTensor.from_row_lengths(np.linspace(-1, 1, 24).reshape(12, 2), [3, 0, 4, 5])
    data = tf.data.Dataset.from_tensors((rows, np.zeros((4, 2))))

    def train(distributed):
        keras.utils.set_random_seed(0)
        with distributed.scope():
            layer = KERAS(dtype="float64")

            class Model(keras.Model):
                def call(self, rows, training=None):
                    return tf.reduce_sum(layer(rows, training=training), 1)

            model = Model()
            model.norm = layer
            model.compile("sgd", "mse")
        model.fit(data, verbose=0, shuffle=False)
        return layer.get_weights()

    plain = train(tf.distribute.get_strategy())
    assert_close(train(kdist.MirroredStrategy(replicas=2)), plain, rtol=1e-9)


def test_derivative_in_forward_mode():
    x, direction = (np.concatenate(part) for part in batch((6,), SMALL))

    def derivative(distributed):
        with distributed.scope():
            layer = KERAS(dtype="float64")
            layer.build((None, *SMALL))

        def step(x, direction):
            with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
                y = layer(x, training=True)
            return accumulator.jvp(y)

        args = [
            per_replica(distributed, np.split(value, distributed.num_replicas_in_sync))
            for value in (x, direction)
        ]
        return concatenated(
            distributed, tf.function(lambda *args: distributed.run(step, args))(*args)
        )

    plain = derivative(tf.distribute.get_strategy())
    ours = derivative(kdist.MirroredStrategy(replicas=2))
    np.testing.assert_allclose(ours, plain, atol=1e-9)
