"""Sentiment of padded texts: masked embedding, a bidirectional LSTM with dropout, clipped Adam."""

import keras
import numpy as np
from keras import layers

SAMPLES, BATCH = 27, 8
WORDS, LENGTH = 20, 7


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of two words or more, zeros after their ends."""
    rng = np.random.default_rng(0)
    texts = rng.integers(1, WORDS, (samples, LENGTH))
    lengths = rng.integers(2, LENGTH + 1, (samples, 1))
    texts[np.arange(LENGTH) >= lengths] = 0
    return texts, rng.integers(0, 2, samples)


def make() -> keras.Model:
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 6, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(4, dropout=0.2, recurrent_dropout=0.2))(x)
    x = layers.Dropout(0.5)(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01, clipnorm=0.05),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model
