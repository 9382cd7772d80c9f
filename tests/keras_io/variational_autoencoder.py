"""A convolutional variational autoencoder: draws inside a layer, and a loss summed over pixels."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SAMPLES, BATCH = 27, 8
LATENT = 2


def data(samples: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(0).uniform(size=(samples, 8, 8, 1)),)


class Sampling(layers.Layer):
    """Draws a point of the latent space from its mean and the log of its variance."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs: Any) -> Any:
        mean, log_variance = inputs
        noise = keras.random.normal(shape=ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


def encoder() -> keras.Model:
    images = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(images)
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Dense(8, activation="relu")(layers.Flatten()(x))
    mean = layers.Dense(LATENT, name="z_mean")(x)
    log_variance = layers.Dense(LATENT, name="z_log_var")(x)
    return keras.Model(images, [mean, log_variance, Sampling()([mean, log_variance])])


def decoder() -> keras.Model:
    latent = keras.Input((LATENT,))
    x = layers.Reshape((2, 2, 6))(layers.Dense(2 * 2 * 6, activation="relu")(latent))
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")(x)
    return keras.Model(latent, x)


class VariationalAutoencoder(keras.Model):
    def __init__(self, encoder: keras.Model, decoder: keras.Model) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.total_tracker = keras.metrics.Mean(name="loss")
        self.reconstruction_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[keras.Metric]:
        return [self.total_tracker, self.reconstruction_tracker, self.kl_tracker]

    def train_step(self, images: Any) -> dict[str, Any]:
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


def make() -> keras.Model:
    model = VariationalAutoencoder(encoder(), decoder())
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    return model
