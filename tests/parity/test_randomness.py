"""Random layers where each replica draws apart, seeded runs, and files stock Keras opens."""

import subprocess
import sys

import kdist
import keras
import numpy as np
import pytest
import samples
import tensorflow as tf
from replicas import assert_close, assert_equal

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.Dropout(0.5, seed=3),
        lambda: keras.layers.RandomTranslation(0.5, 0.5, seed=3),
    ],
)
def test_every_replica_draws_for_itself_in_a_loop_of_ones_own(make):
    strategy = kdist.MirroredStrategy(replicas=3)
    with strategy.scope():
        layer = make()
    images = np.random.default_rng(0).uniform(size=(12, 6, 6, 4)).astype("float32")
    draw = tf.function(lambda: strategy.run(lambda: layer(images, training=True)))
    parts = [part.numpy() for part in strategy.experimental_local_results(draw())]
    again = [part.numpy() for part in strategy.experimental_local_results(draw())]
    drawn = [*parts, *again]
    for index, one in enumerate(drawn):
        assert all(not np.array_equal(one, other) for other in drawn[index + 1 :])


def randomized():
    inputs = keras.Input((6,))
    x = keras.layers.GaussianNoise(0.1)(keras.layers.Dense(8, activation="relu")(inputs))
    x = keras.layers.Dropout(0.3)(keras.layers.BatchNormalization(synchronized=True)(x))
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))


def trained(seed):
    keras.utils.set_random_seed(seed)
    strategy = kdist.MirroredStrategy(replicas=2)
    x, y = samples.classes(27)
    with strategy.scope():
        model = randomized()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return model


def test_a_seeded_run_repeats_itself():
    first, second, other = (trained(seed).get_weights() for seed in (1, 1, 2))
    assert_equal(first, second)
    assert not np.array_equal(first[0], other[0])


IN_STOCK_KERAS = """
import sys
sys.modules["kdist"] = None  # any import of it fails
import keras, numpy as np, tensorflow as tf
folder = sys.argv[1]
x, y = np.load(folder + "/x.npy"), np.load(folder + "/y.npy")
model = keras.models.load_model(folder + "/model.keras")
np.save(folder + "/from_keras.npy", model.predict(x, verbose=0))
np.save(folder + "/scores.npy", model.evaluate(x, y, verbose=0))
exported = tf.saved_model.load(folder + "/exported")
np.save(folder + "/from_export.npy", exported.serve(tf.constant(x, tf.float32)))
model.set_weights([0 * weight for weight in model.get_weights()])
model.load_weights(folder + "/model.weights.h5")
np.save(folder + "/from_weights.npy", model.predict(x, verbose=0))
model.fit(x, y, verbose=0)
"""


@pytest.mark.slow
def test_saved_files_open_where_there_is_no_kdist(tmp_path):
    model = trained(1)
    x, y = samples.classes(27)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    model.export(tmp_path / "exported", verbose=False)
    done = subprocess.run(
        [sys.executable, "-c", IN_STOCK_KERAS, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for source in ("from_keras", "from_export", "from_weights"):
        np.testing.assert_allclose(
            np.load(tmp_path / f"{source}.npy"), model.predict(x, verbose=0), atol=1e-6
        )
    np.testing.assert_allclose(
        np.load(tmp_path / "scores.npy"), model.evaluate(x, y, verbose=0), atol=1e-6
    )


class GlobalNoise(keras.layers.Layer):
    """Draws without a seed of its own."""

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), dtype=x.dtype)


def noisy():
    inputs = keras.Input((6,))
    return keras.Model(inputs, keras.layers.Dense(3)(GlobalNoise()(inputs)))


def test_draws_without_a_seed_are_stocks_under_one_strategy_after_the_other():
    x, y = np.ones((10, 6), "float32"), np.ones((10, 3), "float32")

    def fitted(strategy):
        with strategy.scope():
            model = noisy()
            model.set_weights([np.full(w.shape, 0.5) for w in model.get_weights()])
            model.compile("sgd", "mse")
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        return model

    def weights(strategies):
        keras.utils.set_random_seed(7)
        models = [fitted(strategy) for strategy in strategies]
        for model in models:  # their steps were traced with the generator of their own strategy
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        return [model.get_weights() for model in models]

    default = tf.distribute.get_strategy()
    expected = weights([default] * 3)
    for replicas in ((1, 1, 2), (2, 2, 1), (1, 2, 3)):
        found = weights([kdist.MirroredStrategy(replicas=count) for count in replicas])
        assert_close(expected, found, rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_draw_outside_follows_a_fit(replicas):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    model = strategy.build(noisy)
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 6)), np.ones((4, 3)), verbose=0)
    first, second = (keras.ops.convert_to_numpy(keras.random.normal((3,))) for _ in range(2))
    assert not np.array_equal(first, second)


class Noted(keras.utils.PyDataset):
    """Batches that note the order in which they are asked for."""

    def __init__(self):
        super().__init__()
        self.order = []

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.order.append(index)
        return np.full((4, 3), index, "float32"), np.full((4, 1), index, "float32")


@pytest.mark.parametrize("layer", [keras.layers.Identity, keras.layers.Dropout])
def test_batches_are_shuffled_and_rows_dropped_as_without_a_strategy(layer):
    """Both draw from Python's random numbers: the order of batches, and the seed of no seed."""

    class Draws(keras.layers.Layer):
        def call(self, x):
            return keras.ops.cast(keras.random.dropout(x, 0.5, seed=None), x.dtype)

    def build():
        kind = Draws if layer is keras.layers.Dropout else layer
        model = keras.Sequential([keras.Input((3,)), kind(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    found = []
    for strategy in (None, kdist.MirroredStrategy(replicas=2)):
        keras.utils.set_random_seed(5)
        model = strategy.build(build) if strategy else build()
        data = Noted()
        losses = model.fit(data, epochs=3, verbose=0).history["loss"]
        found.append((data.order, losses))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_data_that_are_shuffled_anew_have_stocks_order_in_every_epoch(replicas):
    """Each iterator of them has another order, and Keras makes more of them than it reads."""

    def run(strategy):
        keras.utils.set_random_seed(2)
        rows = np.arange(25.0)[:, None]
        seeded = tf.data.Dataset.from_tensor_slices((rows, rows)).shuffle(25, seed=3).batch(8)
        unseeded = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(8).shuffle(4)

        def build():
            return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

        model = build() if strategy is None else strategy.build(build)
        model.compile(keras.optimizers.SGD(1e-4), "mse")
        quiet = {"shuffle": False, "verbose": 0}
        found = [model.fit(seeded, epochs=3, validation_data=unseeded, **quiet).history["loss"]]
        found.append(model.fit(unseeded, epochs=2, steps_per_epoch=4, **quiet).history["loss"])
        model.evaluate(seeded, verbose=0)
        return [*found, model.predict(seeded, verbose=0), model.predict(unseeded, verbose=0)]

    assert_close(run(kdist.MirroredStrategy(replicas=replicas)), run(None), rtol=1e-6)
