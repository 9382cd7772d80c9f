"""A DCGAN, and a Wasserstein GAN with a gradient penalty: two optimizers, and several tapes."""

import keras
import tensorflow as tf
from keras import layers, ops

LATENT = 6


def discriminator(kernel, *, pad=(), drop=(), activation=None):
    """Return a model that scores images."""
    parts = [keras.Input((8, 8, 1)), *pad]
    for filters in (4, 6):
        parts += [layers.Conv2D(filters, kernel, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    parts += [*drop, layers.Flatten(), layers.Dropout(0.2), layers.Dense(1, activation=activation)]
    return keras.Sequential(parts, name="discriminator")


def transposed_generator():
    """Return a model that makes images of noise by transposed convolutions."""
    parts = [keras.Input((LATENT,)), layers.Dense(2 * 2 * 6), layers.Reshape((2, 2, 6))]
    for filters in (6, 8):
        parts.append(layers.Conv2DTranspose(filters, 4, strides=2, padding="same"))
        parts.append(layers.LeakyReLU(negative_slope=0.2))
    parts.append(layers.Conv2D(1, 5, padding="same", activation="sigmoid"))
    return keras.Sequential(parts, name="generator")


def upsampling_generator():
    """Return a model that makes images of noise by convolutions and batch norms."""

    def normalized():
        return [layers.BatchNormalization(synchronized=True), layers.LeakyReLU(0.2)]

    parts = [keras.Input((LATENT,)), layers.Dense(2 * 2 * 6, use_bias=False), *normalized()]
    parts += [layers.Reshape((2, 2, 6)), layers.UpSampling2D(2)]
    parts += [layers.Conv2D(6, 3, padding="same", use_bias=False), *normalized()]
    parts += [layers.UpSampling2D(2), layers.Conv2D(1, 3, padding="same", activation="tanh")]
    return keras.Sequential(parts, name="generator")


class Networks(keras.Model):
    """A generator and a discriminator, each with an optimizer."""

    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def latent(self, count):
        return keras.random.normal(shape=(count, LATENT), seed=self.seed_generator)

    def apply(self, optimizer, tape, loss, model):
        weights = model.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


class GAN(Networks):
    """Fake and real images are in one batch, and labels are noisy."""

    def compile(self, *optimizers):
        super().compile(*optimizers)
        self.loss_fn = keras.losses.BinaryCrossentropy()
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real):
        count = ops.shape(real)[0]

        images = ops.concatenate([self.generator(self.latent(count)), real], axis=0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images, training=True))
        self.apply(self.d_optimizer, tape, d_loss, self.discriminator)

        latent, labels = self.latent(count), ops.zeros((count, 1))
        with tf.GradientTape() as tape:
            fake = self.generator(latent, training=True)
            g_loss = self.loss_fn(labels, self.discriminator(fake, training=True))
        self.apply(self.g_optimizer, tape, g_loss, self.generator)

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


class WGAN(Networks):
    """A tape inside a tape, and two steps of one optimizer; logs are the last losses themselves."""

    def gradient_penalty(self, real, fake):
        """How far the slopes between real and fake images are from one."""
        mix = keras.random.uniform((ops.shape(real)[0], 1, 1, 1), seed=self.seed_generator)
        between = real + mix * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.discriminator(between, training=True)
        gradients = tape.gradient(scores, between)
        slopes = ops.sqrt(ops.sum(ops.square(gradients), axis=(1, 2, 3)))
        return ops.mean(ops.square(slopes - 1.0))

    def train_step(self, real):
        count = ops.shape(real)[0]
        for _ in range(2):
            latent = self.latent(count)
            with tf.GradientTape() as tape:
                fake = self.generator(latent, training=True)
                fake_scores = self.discriminator(fake, training=True)
                real_scores = self.discriminator(real, training=True)
                d_loss = ops.mean(fake_scores) - ops.mean(real_scores)
                d_loss += 10.0 * self.gradient_penalty(real, fake)
            self.apply(self.d_optimizer, tape, d_loss, self.discriminator)
        latent = self.latent(count)
        with tf.GradientTape() as tape:
            fake = self.generator(latent, training=True)
            g_loss = -ops.mean(self.discriminator(fake, training=True))
        self.apply(self.g_optimizer, tape, g_loss, self.generator)
        return {"d_loss": d_loss, "g_loss": g_loss}


def gan():
    model = GAN(discriminator(4, activation="sigmoid"), transposed_generator())
    model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(2e-3))
    return model


def wgan():
    parts = {"pad": [layers.ZeroPadding2D(1)], "drop": [layers.Dropout(0.3)]}
    model = WGAN(discriminator(5, **parts), upsampling_generator())
    model.compile(*(keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9) for _ in range(2)))
    return model
