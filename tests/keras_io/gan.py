"""A DCGAN: two optimizers and two tapes, fake and real images in one batch, noise on the labels."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SAMPLES, BATCH = 27, 8
LATENT = 6


def data(samples: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(0).uniform(size=(samples, 8, 8, 1)),)


def discriminator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(6, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ],
        name="discriminator",
    )


def generator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(2 * 2 * 6),
            layers.Reshape((2, 2, 6)),
            layers.Conv2DTranspose(6, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(8, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
        ],
        name="generator",
    )


class GAN(keras.Model):
    def __init__(self, discriminator: keras.Model, generator: keras.Model) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(
        self,
        d_optimizer: keras.optimizers.Optimizer,
        g_optimizer: keras.optimizers.Optimizer,
        loss_fn: keras.losses.Loss,
    ) -> None:
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self) -> list[keras.Metric]:
        return [self.d_loss_metric, self.g_loss_metric]

    def latent(self, count: Any) -> Any:
        return keras.random.normal(shape=(count, LATENT), seed=self.seed_generator)

    def train_step(self, real: Any) -> dict[str, Any]:
        count = ops.shape(real)[0]

        images = ops.concatenate([self.generator(self.latent(count)), real], axis=0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images, training=True))
        weights = self.discriminator.trainable_weights
        gradients = tape.gradient(d_loss, weights)
        self.d_optimizer.apply_gradients(zip(gradients, weights, strict=True))

        latent, labels = self.latent(count), ops.zeros((count, 1))
        with tf.GradientTape() as tape:
            fake = self.generator(latent, training=True)
            g_loss = self.loss_fn(labels, self.discriminator(fake, training=True))
        weights = self.generator.trainable_weights
        gradients = tape.gradient(g_loss, weights)
        self.g_optimizer.apply_gradients(zip(gradients, weights, strict=True))

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def make() -> keras.Model:
    model = GAN(discriminator(), generator())
    model.compile(
        d_optimizer=keras.optimizers.Adam(1e-3),
        g_optimizer=keras.optimizers.Adam(2e-3),
        loss_fn=keras.losses.BinaryCrossentropy(),
    )
    return model
