"""`check` finds keras.io's examples equal."""

import keras
import pytest
import tensorflow as tf
import variational_autoencoder
from kdist import check_model
from keras import ops
from test_keras_io import EXAMPLES, SAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_graph_optimizer")]


def check(make, data):
    return check_model(make, lambda: data(SAMPLES), replicas=(2,), steps=2)


@pytest.mark.parametrize("name", ["text_lstm", "gan", "simclr"])  # of each kind of step one
def test_an_example_is_equal(name):
    result = check(*EXAMPLES[name])
    result.assert_equal()
    assert result.precision.startswith("float64")


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

    check(make, EXAMPLES["variational_autoencoder"][1]).assert_equal()
