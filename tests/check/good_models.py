"""Models that are the same on any number of replicas: `check` must find nothing."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from broken_models import (
    CLASSES,
    FEATURES,
    GathersStored,
    Step,
    Stores,
    X,
    Y,
    behind_hidden,
    compiled,
)
from keras import layers, ops


@dataclasses.dataclass(frozen=True, kw_only=True)
class Good:
    """A model, its data, and the floats that it is checked in."""

    build: Callable[[], Any]
    data: Any
    precision: str = "float64"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def normalized_with_dropout():
    model = behind_hidden(layers.BatchNormalization(), layers.Dropout(0.3))
    return compiled(model, keras.optimizers.Adam(0.01, clipnorm=0.1))


def before_norm():
    """A bias in front of batch norm, as most models have it, and no sign to make steps of it."""
    return compiled(behind_hidden(layers.BatchNormalization()), keras.optimizers.Adam(0.01))


class Unbuilt(keras.Model):
    """Weights that stock Keras makes in the first step, those of the second layer before."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh")
        self.classes = layers.Dense(CLASSES, "softmax")
        self.classes.build((None, 4))

    def call(self, x):
        return self.classes(self.hidden(x))


def masked():
    inputs = keras.Input((4, 2))
    x = layers.LSTM(4)(layers.Masking()(inputs))
    return compiled(keras.Model(inputs, layers.Dense(CLASSES, "softmax")(x)))


def sequences():
    draw = np.random.default_rng(2)
    x = draw.normal(size=(48, 4, 2)) + 1
    x[np.arange(4) >= draw.integers(1, 5, 48)[:, None]] = 0
    return x, Y


class NoisyStep(Step):
    """A step of its own with noise, two losses and a metric."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.error = keras.metrics.Mean(name="error")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            loss = self.compute_loss(x, y, predictions) + 0.01 * ops.mean(ops.square(predictions))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.error.update_state(ops.mean(ops.abs(predictions)))
        return {"loss": loss, "error": self.error.result()}


class ClippedRarely(Step):
    """Clips what each replica's own gradients exceed in other steps than these."""

    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 1e6)[0]


class Adversarial(keras.Model):
    """A generator and a discriminator, each with an optimizer of its own."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((2,)), layers.Dense(FEATURES)])
        self.discriminator = keras.Sequential(
            [keras.Input((FEATURES,)), layers.Dense(8, "tanh"), layers.Dense(1)]
        )
        self.seed = keras.random.SeedGenerator(1)

    def compile(self, one, other):
        super().compile()
        self.of_generator, self.of_discriminator = one, other

    def train_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        ones, zeros = ops.ones((ops.shape(real)[0], 1)), ops.zeros((ops.shape(real)[0], 1))

        def noise():
            return keras.random.normal((ops.shape(real)[0], 2), dtype=real.dtype, seed=self.seed)

        with tf.GradientTape() as tape:
            fake = self.discriminator(self.generator(noise()))
            mistaken = loss(zeros, fake) + loss(ones, self.discriminator(real))
        weights = self.discriminator.trainable_variables
        self.of_discriminator.apply(tape.gradient(mistaken, weights), weights)
        with tf.GradientTape() as tape:
            deceived = loss(ones, self.discriminator(self.generator(noise())))
        weights = self.generator.trainable_variables
        self.of_generator.apply(tape.gradient(deceived, weights), weights)
        return {"d_loss": mistaken, "g_loss": deceived}

    def test_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        return {"mean": ops.mean(self.discriminator(real))}


def adversarial():
    model = Adversarial()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.5))
    return model


def mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((FEATURES,))
    x = layers.BatchNormalization()(layers.Dense(8, "tanh")(inputs))
    x = layers.Dropout(0.3)(x)
    return compiled(keras.Model(inputs, layers.Dense(CLASSES, "softmax", dtype="float32")(x)))


class Reader(keras.utils.PyDataset):
    """Batches of 8, the noise in each drawn from its index."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        noise = np.random.default_rng(index).normal(size=(8, FEATURES))
        return X[rows] + noise, Y[rows]


def shuffled():
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(48).batch(8)
    return rows.prefetch(1), None


GOOD = {
    "batch norm and dropout": Good(
        build=normalized_with_dropout,
        data=lambda: ((X, Y), (X[:8], Y[:8])),
        options={"replicas": (3,), "stock": True},
    ),
    "weights made in the first step": Good(
        build=lambda: compiled(Unbuilt()), data=(X, Y), options={"stock": True}
    ),
    "masks": Good(build=masked, data=sequences),
    "step of its own": Good(
        build=lambda: compiled(behind_hidden(layers.Dropout(0.2), kind=NoisyStep), metrics=None),
        data=Reader,
    ),
    "clipped rarely": Good(
        build=lambda: compiled(behind_hidden(kind=ClippedRarely), metrics=None),
        data=(X, Y),
    ),
    "slow, in float32": Good(
        build=lambda: compiled(
            behind_hidden(layers.Dense(8, dtype="float32"), layers.BatchNormalization()),
            keras.optimizers.Adam(1e-5),
        ),
        data=(X, Y),
        precision="float32",
    ),
    "gathers what is stored": Good(
        build=lambda: compiled(behind_hidden(Stores(name="stores"), kind=GathersStored)),
        data=(X, Y),
    ),
    "two optimizers": Good(build=adversarial, data=lambda: X),
    "mixed precision": Good(build=mixed_precision, data=(X, Y), precision="float16"),
    "takes hyperparameters": Good(
        build=lambda hp: compiled(behind_hidden(layers.Dense(hp.Int("units", 4, 8)))),
        data=shuffled,
    ),
}
