"""Random draws follow the sample's place: what stock Keras draws on one device, bit for bit."""

import functools

import harness
import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops, random

IMAGES = np.random.default_rng(0).uniform(size=(15, 6, 6, 3))
BATCH = 11  # and 4 are left: uneven parts on 2 and 3 replicas, and an empty one on 3


class Drawn(layers.Layer):
    """`draw(x, seed)` with a generator of its own."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw
        self.generator = random.SeedGenerator(5)

    def call(self, x):
        return self.draw(x, self.generator)


def added(draw, **options):
    """`x` and a draw of its shape and type."""
    return lambda: Drawn(
        lambda x, seed: x + draw(ops.shape(x), seed=seed, dtype=x.dtype, **options)
    )


def drawn(draw):
    return lambda: Drawn(draw)


def whole_numbers(dtype):
    def draw(x, seed):
        return x + ops.cast(random.randint(ops.shape(x), 0, 100, seed=seed, dtype=dtype), x.dtype)

    return drawn(draw)


def chosen(x, seed):
    return random.categorical(ops.reshape(x, (-1, 6 * 6 * 3)), 4, seed=seed)


def dropped_steps(x, seed):
    return ops.reshape(random.dropout(ops.reshape(x, (-1, 3)), 0.5, seed=seed), (-1, 6, 6, 3))


def halves_joined(draw):
    """Two batches one behind the other, drawn for at once."""

    def joined(x, seed):
        both = draw(ops.concatenate([x, -x], axis=0), seed)
        return ops.concatenate([both[: ops.shape(x)[0]], both[ops.shape(x)[0] :]], axis=-1)

    return drawn(joined)


NOISE = {
    "Dropout": lambda: layers.Dropout(0.5, seed=1),
    "Dropout of channels": lambda: layers.Dropout(0.5, noise_shape=(None, 1, 1, 3), seed=1),
    "SpatialDropout2D": lambda: layers.SpatialDropout2D(0.5, seed=1),
    "AlphaDropout": lambda: layers.AlphaDropout(0.5, seed=1),
    "GaussianNoise": lambda: layers.GaussianNoise(1.0, seed=1),
    "GaussianDropout": lambda: layers.GaussianDropout(0.5, seed=1),
    "Dropout a step": lambda: layers.TimeDistributed(layers.Dropout(0.5, seed=1)),
    "without a seed": lambda: layers.Dropout(0.5),
}
OPERATIONS = {
    "uniform": added(random.uniform),
    "normal": added(random.normal),
    "truncated normal": added(random.truncated_normal),
    "int32": whole_numbers("int32"),
    "int64": whole_numbers("int64"),
    "gamma": added(random.gamma, alpha=2.0),
    "gamma of values": drawn(
        lambda x, seed: random.gamma(ops.shape(x), x + 0.5, seed=seed, dtype=x.dtype)
    ),
    "beta": added(random.beta, alpha=2.0, beta=3.0),
    "binomial": drawn(
        lambda x, seed: random.binomial(ops.shape(x), 5.0, x, seed=seed, dtype=x.dtype)
    ),
    "categorical": drawn(chosen),
    "shuffle": drawn(lambda x, seed: random.shuffle(x, seed=seed)),
    "three numbers a row": drawn(
        lambda x, seed: x[:, 0, 0] + random.normal((ops.shape(x)[0], 3), seed=seed, dtype=x.dtype)
    ),
    "steps as rows": drawn(dropped_steps),
    "dropout of two batches": halves_joined(lambda x, seed: random.dropout(x, 0.5, seed=seed)),
    "uniform of two batches": halves_joined(
        lambda x, seed: random.uniform(ops.shape(x), seed=seed, dtype=x.dtype)
    ),
    "the generator of all": drawn(lambda x, _: x + random.normal(ops.shape(x), dtype=x.dtype)),
}
# Drawn for the batch, not for its rows.
SHARED = {
    "one for all rows": drawn(
        lambda x, seed: x + random.normal((1, 6, 6, 3), seed=seed, dtype=x.dtype)
    ),
    "a scalar": drawn(lambda x, seed: x * random.uniform((), seed=seed, dtype=x.dtype)),
    "a weight": drawn(
        lambda x, seed: x + ops.sum(random.normal((3, 3), seed=seed, dtype=x.dtype), axis=0)
    ),
    "Dropout over the batch": lambda: layers.Dropout(0.5, noise_shape=(1, None, 6, 3), seed=1),
}


# Augmentations are compared by `tests/keras_listing`, as all layers.
GROUPS = {"noise": NOISE, "operations": OPERATIONS, "shared": SHARED}


class Training(layers.Layer):
    """A layer that draws in predictions too: Keras overrides `training=True` in a Functional."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return self.layer(x, training=True)


def always_drawing(layer):
    return layer if isinstance(layer, Drawn) else Training(layer)


def functional(group):
    """An output for every layer of the group."""
    inputs = keras.Input((6, 6, 3))
    return keras.Model(
        inputs, {name: always_drawing(make())(inputs) for name, make in GROUPS[group].items()}
    )


def predicted(group, policy, strategy=None):
    """Return two predictions of the images by a new model."""
    strategy = strategy or tf.distribute.get_strategy()
    with harness.policy(policy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = functional(group)
        x = tf.data.Dataset.from_tensor_slices(IMAGES.astype(keras.config.floatx())).batch(BATCH)
        return [model.predict(x, verbose=0) for _ in range(2)]


@functools.cache
def on_one_device(group, policy):
    return predicted(group, policy)


def different(expected, got):
    """Return the names of the outputs that differ."""
    return {name for name in expected if not np.array_equal(expected[name], got[name])}


@pytest.mark.usefixtures("without_graph_optimizer")
@pytest.mark.parametrize(
    ("group", "policy", "replicas"),
    [
        ("noise", "float32", 3),
        ("operations", "float64", 3),
        ("shared", "float64", 8),
    ],
)
def test_replicas_draw_what_one_device_draws(group, policy, replicas):
    expected = on_one_device(group, policy)
    assert different(*expected) == GROUPS[group].keys(), "nothing was drawn"
    got = predicted(group, policy, kdist.MirroredStrategy(replicas=replicas))
    for one, other in zip(expected, got, strict=True):
        assert not different(one, other)
