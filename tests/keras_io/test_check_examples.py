"""`check` finds keras.io's examples equal, and names data that differ each time."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
import text_lstm
import variational_autoencoder
import wgan_gp
from kdist import check_model
from keras import layers, ops
from test_keras_io import EXAMPLES

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def check(module, make, data=None, **options):
    data = data or (lambda: module.data(module.SAMPLES))
    return check_model(make, data, **{"replicas": (2,), "steps": 2, "stock": False, **options})


@pytest.mark.parametrize("name", ["text_lstm", "gan", "simclr"])  # of each kind of step one
def test_an_example_is_equal(name):
    module, make = EXAMPLES[name]
    result = check(module, make)
    result.assert_equal()
    assert result.causes == []
    assert result.precision.startswith("float64")
    # Some have a `train_step`, but are not meant for `evaluate`.
    assert not any("evaluate is not compared" in note for note in result.notes)


def test_batch_norms_that_are_not_synchronized(monkeypatch):
    def plain(**options):
        return layers.BatchNormalization(**{**options, "synchronized": False})

    changed = SimpleNamespace(**{**vars(layers), "BatchNormalization": plain})
    monkeypatch.setattr(wgan_gp, "layers", changed)
    check(wgan_gp, wgan_gp.make, synchronize=False).assert_equal()


class OwnWeights(variational_autoencoder.VariationalAutoencoder):
    """Adds the largest of the images' errors to the mean, so that its gradient is of one image."""

    def train_step(self, images):
        with tf.GradientTape() as tape:
            mean, log_variance, latent = self.encoder(images, training=True)
            errors = keras.losses.binary_crossentropy(images, self.decoder(latent, training=True))
            loss = ops.mean(errors) + ops.max(ops.sum(errors, axis=(1, 2)))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


def test_the_largest_error_in_the_loss():
    def make():
        model = OwnWeights(variational_autoencoder.encoder(), variational_autoencoder.decoder())
        model.compile(optimizer=keras.optimizers.Adam(0.01))
        return model

    check(variational_autoencoder, make).assert_equal()


def test_data_without_a_seed():
    def data():
        texts, labels = text_lstm.data(text_lstm.SAMPLES)
        order = np.random.default_rng().permutation(len(texts))
        return texts[order], labels[order]

    (found,) = check(text_lstm, text_lstm.make, data).causes
    assert found.name == "data_without_seed"
    assert "default_rng()" in found.line
