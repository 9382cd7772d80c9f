"""The layer against TensorFlow's operation and against the formula, summed channel by channel."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist import MirroredStrategy
from kdist.errors import UserError
from kdist.layers import LocalResponseNormalization
from replicas import assert_close, fit

TOWER = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}
OPTIONS = st.fixed_dictionaries(
    {
        "depth_radius": st.integers(0, 8),
        "bias": st.floats(0.5, 3),
        "alpha": st.floats(0, 1),
        "beta": st.sampled_from([0.0, 0.5, 0.75, 1.0]) | st.floats(0, 2),
    }
)
SHAPES = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 20))


def values(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def output_and_gradient(normalize, x, upstream):
    x, upstream = tf.constant(x), tf.constant(upstream)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = normalize(x)
    return y.numpy(), tape.gradient(y, x, upstream).numpy()


def by_hand(x, depth_radius, bias, alpha, beta):
    """The definition, in which tf.GradientTape may differentiate as often as it likes."""
    channels = x.shape[-1]
    sums = [
        tf.reduce_sum(x[..., max(0, at - depth_radius) : at + depth_radius + 1] ** 2, -1)
        for at in range(channels)
    ]
    return x / (bias + alpha * tf.stack(sums, -1)) ** beta


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, options=OPTIONS)
def test_outputs_and_gradients_are_tensorflows(shape, options):
    x, upstream = values(shape), values(shape, seed=1)
    layer = LocalResponseNormalization(**options)
    ours = output_and_gradient(layer, x, upstream)
    stock = output_and_gradient(
        lambda x: tf.nn.local_response_normalization(x, **options), x, upstream
    )
    assert_close(ours, stock, rtol=0, atol=4e-6)


def test_the_towers_is_tensorflows_to_a_millionth():
    x, upstream = values((16, 12, 12, 64)), values((16, 12, 12, 64), seed=1)
    ours = output_and_gradient(LocalResponseNormalization(**TOWER), x, upstream)
    stock = output_and_gradient(
        lambda x: tf.nn.local_response_normalization(x, **TOWER), x, upstream
    )
    assert_close(ours, stock, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (2, 2, 2, 2, 6)])
def test_any_rank_and_a_batch_of_unknown_size(shape):
    layer = LocalResponseNormalization(2)
    x = values(shape)
    graph = tf.function(layer, input_signature=[tf.TensorSpec((None, *shape[1:]))])
    np.testing.assert_allclose(graph(x), by_hand(tf.constant(x), 2, 1, 1, 0.5), atol=1e-6)
    assert graph.get_concrete_function().output_shapes.as_list() == [None, *shape[1:]]
    compiled = tf.function(layer, jit_compile=True)
    np.testing.assert_allclose(compiled(x), graph(x), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_sums_in_float32(policy):
    layer = LocalResponseNormalization(**TOWER, dtype=policy)
    x = tf.cast(values((4, 3, 3, 64)) * 30, layer.compute_dtype)  # alpha * sum is about 0.9
    upstream = tf.ones_like(x)
    y, gradient = output_and_gradient(layer, x, upstream)
    assert y.dtype == gradient.dtype == layer.compute_dtype
    exact = output_and_gradient(
        lambda x: by_hand(x, **TOWER), tf.cast(x, tf.float64), tf.cast(upstream, tf.float64)
    )
    step = {"mixed_float16": 2**-11, "mixed_bfloat16": 2**-8}[policy]
    np.testing.assert_allclose(y.astype(float), exact[0], rtol=1.01 * step)
    np.testing.assert_allclose(gradient.astype(float), exact[1], rtol=1.01 * step, atol=1e-3)


def test_a_saved_layer_keeps_its_arguments(tmp_path):
    inputs = keras.Input((4, 4, 6))
    model = keras.Model(inputs, LocalResponseNormalization(**TOWER, name="norm")(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").get_layer("norm")
    assert {name: getattr(loaded, name) for name in TOWER} == TOWER
    x = values((2, 4, 4, 6))
    np.testing.assert_array_equal(model(x), keras.models.load_model(tmp_path / "model.keras")(x))


def test_replicas_train_as_one(float64):
    x, y = values((7, 4, 4, 3), dtype=np.float64), np.arange(7) % 2

    def make():
        layers = [keras.layers.Conv2D(5, 3), LocalResponseNormalization(1, alpha=0.5)]
        layers += [keras.layers.Flatten(), keras.layers.Dense(2)]
        return keras.Sequential([keras.Input((4, 4, 3)), *layers])

    def trained(replicas):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        options = {"optimizer": keras.optimizers.SGD(0.1), "loss": loss}
        options |= {"batch_size": 5, "epochs": 2}
        return fit(MirroredStrategy(replicas=replicas), make, x, y, **options).get_weights()

    assert_close(trained(1), trained(2), atol=1e-14)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"depth_radius": -1}, "depth_radius is -1, but has to be an integer of at least 0"),
        ({"depth_radius": 2.0}, "depth_radius is 2.0, but has to be an integer"),
        ({"bias": 0}, "bias is 0, but has to be a number above 0 and finite"),
        ({"alpha": -0.1}, "alpha is -0.1, but has to be a number of at least 0 and finite"),
        ({"beta": float("inf")}, "beta is inf, but has to be a number of at least 0 and finite"),
        ({"beta": "1"}, "beta is '1', but has to be a number"),
    ],
)
def test_an_argument_out_of_range_is_an_error(options, why):
    with pytest.raises(UserError, match=why):
        LocalResponseNormalization(**options)


def test_an_unknown_number_of_channels_is_an_error():
    with pytest.raises(UserError, match="known number of channels"):
        LocalResponseNormalization()(keras.Input((4, 4, None)))
