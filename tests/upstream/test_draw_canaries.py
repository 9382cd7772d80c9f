"""What stock Keras and TensorFlow draw on several replicas."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from stock_models import on_replicas


def test_seeds_are_the_same_on_every_replica(stock):
    with stock.scope():
        generator = keras.random.SeedGenerator(1)
    one, other = on_replicas(stock, lambda: generator.next())
    np.testing.assert_array_equal(one, other)
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=2)
    with strategy.scope():
        generator = keras.random.SeedGenerator(1)
    one, other = on_replicas(strategy, lambda: generator.next())
    assert one[0] != other[0]


class Drawn(keras.layers.Layer):
    """`draw(x, seed)`, in predictions too."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return self.draw(x, self.generator)


def predicted(strategy, draw, x):
    with strategy.scope():
        model = keras.Sequential([keras.Input(x.shape[1:]), Drawn(draw)])
    return model.predict(x, batch_size=len(x), verbose=0)


def of_shape(draw, **options):
    return lambda x, seed: draw(tf.shape(x), seed=seed, **options)


def of_tensorflow(draw, **options):
    """With a seed as TensorFlow takes it."""

    def drawn(x, seed):
        seed = tf.cast(seed.next() % 1000, "int32")
        return tf.cast(draw(tf.shape(x), seed=seed, **options), "float32")

    return drawn


DRAWS = {
    "stateless_random_uniform_v2": of_shape(keras.random.uniform),
    "stateless_random_uniform_int_v2": of_shape(
        keras.random.randint, minval=0, maxval=1000, dtype="int32"
    ),
    "stateless_random_uniform_full_int_v2": of_tensorflow(
        tf.random.stateless_uniform, minval=None, maxval=None, dtype=tf.int32
    ),
    "stateless_random_normal_v2": of_shape(keras.random.normal),
    "stateless_truncated_normal_v2": of_shape(keras.random.truncated_normal),
    "stateless_random_gamma_v3": of_shape(keras.random.gamma, alpha=2.0),
    "stateless_random_binomial": of_shape(keras.random.binomial, counts=100.0, probabilities=0.5),
    "stateless_random_poisson": of_tensorflow(tf.random.stateless_poisson, lam=50.0),
    "stateless_multinomial": lambda x, seed: keras.random.categorical(
        tf.tile(x, [1, 100]), 5, seed=seed
    ),
    "dropout": lambda x, seed: keras.random.dropout(
        tf.ones_like(tf.tile(x, [1, 9])), 0.5, seed=seed
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_replicas_draw_the_same_for_different_samples(name, stock):
    """Seeds are the same: sample 2 is given what sample 0 was given."""
    x = np.zeros((4, 5), "float32")
    strategies = (stock, kdist.MirroredStrategy(replicas=2), tf.distribute.get_strategy())
    doubled, got, expected = (predicted(one, DRAWS[name], x) for one in strategies)
    np.testing.assert_array_equal(doubled, np.tile(expected[:2], (2, 1)))
    np.testing.assert_array_equal(got, expected)
    assert (expected[:2] != expected[2:]).any()


class Mixed(keras.layers.Layer):
    def __init__(self, make):
        super().__init__()
        self.inner = make()

    def call(self, x):
        return self.inner(x, training=True)


class Shuffle(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x, training=False):
        return keras.random.shuffle(x, seed=self.generator)


@pytest.mark.parametrize(
    "make",
    [Shuffle, lambda: keras.layers.CutMix(seed=3), lambda: keras.layers.MixUp(seed=3)],
    ids=["shuffle", "CutMix", "MixUp"],
)
def test_rows_are_shuffled_and_mixed_within_a_replica(make, stock):
    x = np.repeat(np.arange(2, dtype="float32"), 8).reshape(16, 1, 1, 1) * np.ones((1, 4, 4, 1))
    found = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2), tf.distribute.get_strategy()):
        with strategy.scope():
            model = keras.Sequential([keras.Input((4, 4, 1)), Mixed(make)])
        found.append(model.predict(x, batch_size=16, verbose=0))
    apart, got, expected = found
    np.testing.assert_array_equal(apart, x)  # mixed among rows that are alike
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert (expected != x).any()


def test_dropout_keeps_its_random_numbers():
    """It draws once, and the gradient multiplies by what was drawn."""

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = keras.random.dropout(x, 0.5, seed=1)
        return tape.gradient(y, x)

    graph = gradient.get_concrete_function(tf.TensorSpec((None, 4))).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert sum(kind.startswith("StatelessRandomUniform") for kind in kinds) == 1


KEY, COUNTER = tf.constant([7], "uint64"), [3, 0]


@pytest.mark.parametrize(
    ("draw", "counts_per_value"),
    [
        (tf.raw_ops.StatelessRandomUniformV2, 1 / 4),
        (tf.raw_ops.StatelessRandomNormalV2, 1 / 4),
        (tf.raw_ops.StatelessTruncatedNormalV2, 64),
    ],
)
def test_numbers_are_drawn_from_a_counter(draw, counts_per_value):
    """What `draws` relies on, not what it works around: so many counts on come later numbers."""

    def drawn(first, count):
        skipped = [COUNTER[0] + int(first * counts_per_value), COUNTER[1]]
        counter = tf.constant(skipped, "uint64")
        return draw(shape=[count], key=KEY, counter=counter, alg=1, dtype="float32").numpy()

    whole = drawn(0, 1000)
    for first in (4, 8, 256, 640):
        np.testing.assert_array_equal(drawn(first, 1000 - first), whole[first:])
