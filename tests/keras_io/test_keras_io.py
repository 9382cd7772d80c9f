"""Examples of keras.io train the same model on several replicas as on stock Keras."""

import gans
import kdist
import keras
import numpy as np
import pytest
import simclr
import tensorflow as tf
import texts
import variational_autoencoder
import vision_transformer
from replicas import assert_close

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float64", "without_graph_optimizer")]

SAMPLES, BATCH = 27, 8


def images(*shape, low=0.0, high=1.0, labels=True):
    """Return a function that draws images, and labels of four classes."""

    def draw(samples):
        rng = np.random.default_rng(0)
        drawn = rng.uniform(low, high, size=(samples, *shape))
        return (drawn, rng.integers(0, 4, samples)) if labels else (drawn,)

    return draw


# The functions that make an example's model, and its data of a number of samples.
EXAMPLES = {
    "gan": (gans.gan, images(8, 8, 1, labels=False)),
    "simclr": (simclr.make, images(8, 8, 3, high=255)),
    "text_lstm": (texts.lstm, texts.padded),
    "text_transformer": (texts.transformer, texts.padded),
    "variational_autoencoder": (variational_autoencoder.make, images(8, 8, 1, labels=False)),
    "vision_transformer": (vision_transformer.make, images(6, 6, 3, high=255)),
    "wgan_gp": (gans.wgan, images(8, 8, 1, low=-1, labels=False)),
}


def train(name, strategy):
    """The weights and the history of two epochs; labelled data are also evaluated after each."""
    make, data_of = EXAMPLES[name]
    data = data_of(SAMPLES)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = make()
    # Stock Keras gives the same without a graph, whose tracing takes longer than so few steps.
    model.run_eagerly = not isinstance(strategy, kdist.MirroredStrategy)
    options = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    if len(data) == 2:
        options |= {"validation_data": data, "validation_batch_size": BATCH}
    history = model.fit(*data, **options).history
    return model.get_weights(), history


# Each once, as a step takes long to trace; on three replicas, which divide no batch evenly, one
# that compares the rows of a batch with each other and one of several optimizer steps in one.
ON_THREE = ("simclr", "wgan_gp")


@pytest.mark.parametrize("name", EXAMPLES)
def test_several_replicas_give_what_stock_keras_gives(name):
    expected_weights, expected_history = train(name, tf.distribute.get_strategy())
    replicas = 3 if name in ON_THREE else 2
    strategy = kdist.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
    weights, history = train(name, strategy)
    assert_close(weights, expected_weights, rtol=0, atol=1e-9)
    assert history.keys() == expected_history.keys()
    for metric, values in expected_history.items():
        np.testing.assert_allclose(history[metric], values, rtol=0, atol=1e-6, err_msg=metric)
