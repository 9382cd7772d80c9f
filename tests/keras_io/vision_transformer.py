"""A vision transformer: augmentation, patches, learned positions, attention with dropout, AdamW."""

import keras
import numpy as np
from keras import layers, ops

CLASSES = 4
PATCH, PATCHES = 3, 4
WIDTH, HEADS, BLOCKS = 6, 2, 2


class Patches(layers.Layer):
    """Cuts images into squares, each a row of its pixels."""

    def call(self, images):
        patches = ops.image.extract_patches(images, size=PATCH)
        _, rows, columns, pixels = patches.shape
        return ops.reshape(patches, (-1, rows * columns, pixels))


class PatchEncoder(layers.Layer):
    """Projects patches, and adds an embedding of their places."""

    def __init__(self):
        super().__init__()
        self.projection = layers.Dense(WIDTH)
        self.position_embedding = layers.Embedding(input_dim=PATCHES, output_dim=WIDTH)

    def call(self, patches):
        positions = ops.expand_dims(ops.arange(PATCHES), axis=0)
        return self.projection(patches) + self.position_embedding(positions)


class Rotation(layers.RandomRotation):
    """Draws its angles in float32, the only ones that Keras 3.15's RandomRotation can work with."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.floatx = keras.config.floatx()

    def get_random_transformation(self, *args, **options):
        keras.config.set_floatx("float32")
        try:
            return super().get_random_transformation(*args, **options)
        finally:
            keras.config.set_floatx(self.floatx)


def augmentation():
    normalization = layers.Normalization()
    normalization.adapt(np.random.default_rng(0).uniform(0, 255, size=(27, 6, 6, 3)))
    drawing = [layers.RandomFlip("horizontal", seed=1), Rotation(0.02, seed=2)]
    drawing.append(layers.RandomZoom(0.2, 0.2, seed=3))
    return keras.Sequential([keras.Input((6, 6, 3)), normalization, *drawing])


def mlp(x, units, rate):
    for width in units:
        x = layers.Dense(width, activation="gelu")(x)
        x = layers.Dropout(rate)(x)
    return x


def make():
    inputs = keras.Input((6, 6, 3))
    encoded = PatchEncoder()(Patches()(augmentation()(inputs)))
    for _ in range(BLOCKS):
        x = layers.LayerNormalization(epsilon=1e-6)(encoded)
        x = layers.MultiHeadAttention(num_heads=HEADS, key_dim=WIDTH, dropout=0.1)(x, x)
        attended = layers.Add()([x, encoded])
        x = layers.LayerNormalization(epsilon=1e-6)(attended)
        encoded = layers.Add()([mlp(x, (2 * WIDTH, WIDTH), rate=0.1), attended])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded))
    x = mlp(layers.Dropout(0.5)(x), (12, 8), rate=0.5)
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001)
    model.compile(adam, loss, metrics=["accuracy"])
    return model
