"""Models of four kinds, trained in float32; a digest of all that comes out of it.

    python trained_bits.py REPLICAS MODEL... [--divided] [--workers]

prints the digests, with divided weights with `--divided`, on one of several workers with
`--workers`.
"""

import hashlib
import sys

import kdist
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SHARDS = 4
ROWS, BATCH = 22, 10  # batches of 10, 10 and 2 rows: one has fewer rows than shards
IMAGE = (8, 8, 3)
WORDS = 1001


def network():
    return keras.Sequential(
        [
            keras.Input(IMAGE),
            layers.RandomFlip("horizontal"),
            layers.RandomTranslation(0.2, 0.2),
            kdist.models.WideResNet(depth=10, width=1, input_shape=IMAGE, classes=5, dropout=0.2),
        ]
    )


def lstm():
    return keras.Sequential(
        [
            keras.Input(IMAGE),
            layers.Reshape((8, 24)),
            layers.LSTM(8, dropout=0.2),
            layers.Dense(5, activation="softmax"),
        ]
    )


def transformer():
    inputs = keras.Input(IMAGE)
    x = layers.Reshape((8, 24))(inputs)
    attended = layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x)
    x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
    x = layers.LayerNormalization()(x + layers.Dense(24)(layers.Dense(32, activation="gelu")(x)))
    return keras.Model(
        inputs, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    )


@keras.saving.register_keras_serializable("trained_bits")
class GAN(keras.Model):
    """As in Keras's examples: two optimizers, and noise of the batch's size."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((4,)), layers.Dense(192)])
        self.discriminator = keras.Sequential(
            [keras.Input((192,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(1)]
        )
        self.seed = keras.random.SeedGenerator(3)
        self.mean = keras.metrics.Mean("loss")

    def call(self, images):
        return self.discriminator(ops.reshape(images, (-1, 192)))

    def compile(self):
        super().compile()
        self.optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02)]

    def train_step(self, data):
        images = ops.reshape(data[0], (-1, 192))
        noise = keras.random.normal((ops.shape(images)[0], 4), seed=self.seed)
        parts = (self.discriminator, self.generator)
        for optimizer, part, sign in zip(self.optimizers, parts, (1.0, -1.0), strict=True):
            with tf.GradientTape() as tape:
                fake = self.discriminator(self.generator(noise), training=True)
                real = self.discriminator(images, training=True)
                loss = sign * ops.mean(fake) + ops.mean(ops.softplus(-real)) * (1 + sign)
            weights = part.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        self.mean.update_state(loss, ops.shape(images)[0])
        return {"loss": self.mean.result()}


def words():
    """A table with more rows than a batch looks up."""
    inputs = keras.Input(IMAGE)
    places = ops.cast(ops.abs(inputs[:, :, 0, :]) * 400, "int32") % WORDS
    x = layers.GlobalAveragePooling2D()(layers.Embedding(WORDS, 8)(places))
    x = layers.Dense(600, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


MODELS = {"network": network, "lstm": lstm, "transformer": transformer, "gan": GAN}
DIVIDED = {"words": words}


def digest(strategy, name):
    """Train a model for two epochs, and predict; return a digest of all bits of the results."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, *IMAGE)).astype("float32")
    y = rng.integers(0, 5, ROWS)
    model = strategy.build((MODELS | DIVIDED)[name])
    if name == "gan":
        model.compile()
    else:
        optimizer = keras.optimizers.Adam(0.01, clipnorm=1.0)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    optimizers = getattr(model, "optimizers", [model.optimizer])
    states = [variable.numpy() for one in optimizers for variable in one.variables]
    found = hashlib.sha256(repr(history).encode())
    for value in (*model.get_weights(), *states, predicted):
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()[:16]


def main():
    options = {argument for argument in sys.argv if argument.startswith("--")}
    replicas, *names = (argument for argument in sys.argv[1:] if argument not in options)
    on_workers = "--workers" in options
    kind = kdist.MultiWorkerMirroredStrategy if on_workers else kdist.MirroredStrategy
    strategy = kind(replicas=int(replicas), shards=SHARDS, shard_weights="--divided" in options)
    for name in names:
        found = digest(strategy, name)
        if strategy.worker == 0:
            print(f"digest of {name}: {found}", flush=True)


if __name__ == "__main__":
    main()
