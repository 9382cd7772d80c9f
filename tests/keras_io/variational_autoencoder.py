"""A convolutional variational autoencoder: draws inside a layer, and a loss summed over pixels."""

import keras
import tensorflow as tf
from keras import layers, ops

LATENT = 2


class Sampling(layers.Layer):
    """Draws a point of the latent space from its mean and the log of its variance."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(shape=ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


def encoder():
    images = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(images)
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Dense(8, activation="relu")(layers.Flatten()(x))
    mean = layers.Dense(LATENT, name="z_mean")(x)
    log_variance = layers.Dense(LATENT, name="z_log_var")(x)
    return keras.Model(images, [mean, log_variance, Sampling()([mean, log_variance])])


def decoder():
    latent = keras.Input((LATENT,))
    x = layers.Reshape((2, 2, 6))(layers.Dense(2 * 2 * 6, activation="relu")(latent))
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")(x)
    return keras.Model(latent, x)


class VariationalAutoencoder(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.total_tracker = keras.metrics.Mean(name="loss")
        self.reconstruction_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total_tracker, self.reconstruction_tracker, self.kl_tracker]

    def train_step(self, images):
        with tf.GradientTape() as tape:
            mean, log_variance, latent = self.encoder(images, training=True)
            errors = keras.losses.binary_crossentropy(images, self.decoder(latent, training=True))
            reconstruction = ops.mean(ops.sum(errors, axis=(1, 2)))
            kl = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            kl = ops.mean(ops.sum(kl, axis=1))
            total = reconstruction + kl
        gradients = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total_tracker.update_state(total)
        self.reconstruction_tracker.update_state(reconstruction)
        self.kl_tracker.update_state(kl)
        return {metric.name: metric.result() for metric in self.metrics}


def make():
    model = VariationalAutoencoder(encoder(), decoder())
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    return model
