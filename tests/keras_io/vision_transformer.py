"""A vision transformer: augmentation, patches, learned positions, attention with dropout, AdamW."""

from typing import Any

import keras
import numpy as np
from keras import layers, ops

SAMPLES, BATCH = 27, 8
CLASSES = 4
PATCH, PATCHES = 3, 4
WIDTH, HEADS, BLOCKS = 6, 2, 2


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, size=(samples, 6, 6, 3)), rng.integers(0, CLASSES, samples)


class Patches(layers.Layer):
    """Cuts images into squares, each a row of its pixels."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def call(self, images: Any) -> Any:
        patches = ops.image.extract_patches(images, size=self.size)
        _, rows, columns, pixels = patches.shape
        return ops.reshape(patches, (-1, rows * columns, pixels))


class PatchEncoder(layers.Layer):
    """Projects patches, and adds what was learned for their places."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.patches = patches
        self.projection = layers.Dense(width)
        self.position_embedding = layers.Embedding(input_dim=patches, output_dim=width)

    def call(self, patches: Any) -> Any:
        positions = ops.expand_dims(ops.arange(self.patches), axis=0)
        return self.projection(patches) + self.position_embedding(positions)


class Rotation(layers.RandomRotation):
    """Draws its angles in float32, the only ones that Keras 3.15's RandomRotation can work with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.floatx = keras.config.floatx()

    def get_random_transformation(self, *args: Any, **options: Any) -> Any:
        keras.config.set_floatx("float32")
        try:
            return super().get_random_transformation(*args, **options)
        finally:
            keras.config.set_floatx(self.floatx)


def augmentation() -> keras.Model:
    normalization = layers.Normalization()
    images, _ = data(SAMPLES)
    normalization.adapt(images)
    return keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            normalization,
            layers.RandomFlip("horizontal", seed=1),
            Rotation(0.02, seed=2),
            layers.RandomZoom(0.2, 0.2, seed=3),
        ],
        name="augmentation",
    )


def mlp(x: Any, units: tuple[int, ...], rate: float) -> Any:
    for width in units:
        x = layers.Dense(width, activation="gelu")(x)
        x = layers.Dropout(rate)(x)
    return x


def make() -> keras.Model:
    inputs = keras.Input((6, 6, 3))
    encoded = PatchEncoder(PATCHES, WIDTH)(Patches(PATCH)(augmentation()(inputs)))
    for _ in range(BLOCKS):
        x = layers.LayerNormalization(epsilon=1e-6)(encoded)
        x = layers.MultiHeadAttention(num_heads=HEADS, key_dim=WIDTH, dropout=0.1)(x, x)
        attended = layers.Add()([x, encoded])
        x = layers.LayerNormalization(epsilon=1e-6)(attended)
        encoded = layers.Add()([mlp(x, (2 * WIDTH, WIDTH), rate=0.1), attended])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded))
    x = mlp(layers.Dropout(0.5)(x), (12, 8), rate=0.5)
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    return model
