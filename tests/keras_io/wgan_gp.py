"""A Wasserstein GAN with gradient penalty: a tape inside a tape, several steps of one optimizer.

Its logs are the last losses themselves, no metrics.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SAMPLES, BATCH = 27, 8
LATENT = 6


def data(samples: int) -> tuple[np.ndarray]:
    return (np.random.default_rng(0).uniform(-1, 1, size=(samples, 8, 8, 1)),)


def discriminator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.ZeroPadding2D(1),
            layers.Conv2D(4, 5, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(6, 5, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ],
        name="discriminator",
    )


def generator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(2 * 2 * 6, use_bias=False),
            layers.BatchNormalization(synchronized=True),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((2, 2, 6)),
            layers.UpSampling2D(2),
            layers.Conv2D(6, 3, padding="same", use_bias=False),
            layers.BatchNormalization(synchronized=True),
            layers.LeakyReLU(negative_slope=0.2),
            layers.UpSampling2D(2),
            layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ],
        name="generator",
    )


def discriminator_loss(real: Any, fake: Any) -> Any:
    return ops.mean(fake) - ops.mean(real)


def generator_loss(fake: Any) -> Any:
    return -ops.mean(fake)


class WGAN(keras.Model):
    def __init__(
        self,
        discriminator: keras.Model,
        generator: keras.Model,
        d_steps: int = 2,
        penalty_weight: float = 10.0,
    ) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.d_steps = d_steps
        self.penalty_weight = penalty_weight
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(
        self,
        d_optimizer: keras.optimizers.Optimizer,
        g_optimizer: keras.optimizers.Optimizer,
        d_loss_fn: Callable[[Any, Any], Any],
        g_loss_fn: Callable[[Any], Any],
    ) -> None:
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def gradient_penalty(self, real: Any, fake: Any) -> Any:
        """How far the slopes between real and fake images are from one."""
        count = ops.shape(real)[0]
        mix = keras.random.uniform((count, 1, 1, 1), seed=self.seed_generator)
        between = real + mix * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.discriminator(between, training=True)
        gradients = tape.gradient(scores, between)
        slopes = ops.sqrt(ops.sum(ops.square(gradients), axis=(1, 2, 3)))
        return ops.mean(ops.square(slopes - 1.0))

    def train_step(self, real: Any) -> dict[str, Any]:
        count = ops.shape(real)[0]

        for _ in range(self.d_steps):
            latent = keras.random.normal((count, LATENT), seed=self.seed_generator)
            with tf.GradientTape() as tape:
                fake = self.generator(latent, training=True)
                fake_scores = self.discriminator(fake, training=True)
                real_scores = self.discriminator(real, training=True)
                penalty = self.gradient_penalty(real, fake)
                d_loss = self.d_loss_fn(real_scores, fake_scores) + penalty * self.penalty_weight
            weights = self.discriminator.trainable_variables
            gradients = tape.gradient(d_loss, weights)
            self.d_optimizer.apply_gradients(zip(gradients, weights, strict=True))

        latent = keras.random.normal((count, LATENT), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            fake = self.generator(latent, training=True)
            g_loss = self.g_loss_fn(self.discriminator(fake, training=True))
        weights = self.generator.trainable_variables
        gradients = tape.gradient(g_loss, weights)
        self.g_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"d_loss": d_loss, "g_loss": g_loss}


def make() -> keras.Model:
    model = WGAN(discriminator(), generator())
    model.compile(
        d_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
        g_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
        d_loss_fn=discriminator_loss,
        g_loss_fn=generator_loss,
    )
    return model
