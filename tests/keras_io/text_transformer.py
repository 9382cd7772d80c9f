"""Sentiment of texts by a transformer: token and position embeddings, one block with dropout."""

from typing import Any

import keras
import numpy as np
from keras import layers, ops

SAMPLES, BATCH = 27, 8
WORDS, LENGTH = 20, 7
WIDTH, HEADS = 6, 2


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, WORDS, (samples, LENGTH)), rng.integers(0, 2, samples)


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, length: int, words: int, width: int) -> None:
        super().__init__()
        self.token_embedding = layers.Embedding(input_dim=words, output_dim=width)
        self.position_embedding = layers.Embedding(input_dim=length, output_dim=width)

    def call(self, tokens: Any) -> Any:
        positions = ops.arange(ops.shape(tokens)[-1])
        return self.token_embedding(tokens) + self.position_embedding(positions)


class TransformerBlock(layers.Layer):
    def __init__(self, width: int, heads: int, hidden: int, rate: float = 0.1) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=heads, key_dim=width)
        self.feed_forward = keras.Sequential(
            [layers.Dense(hidden, activation="relu"), layers.Dense(width)]
        )
        self.attention_norm = layers.LayerNormalization(epsilon=1e-6)
        self.feed_forward_norm = layers.LayerNormalization(epsilon=1e-6)
        self.attention_dropout = layers.Dropout(rate)
        self.feed_forward_dropout = layers.Dropout(rate)

    def call(self, x: Any, training: bool = False) -> Any:
        attended = self.attention_dropout(self.attention(x, x), training=training)
        x = self.attention_norm(x + attended)
        forwarded = self.feed_forward_dropout(self.feed_forward(x), training=training)
        return self.feed_forward_norm(x + forwarded)


def make() -> keras.Model:
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = TokenAndPositionEmbedding(LENGTH, WORDS, WIDTH)(inputs)
    x = TransformerBlock(WIDTH, HEADS, hidden=8)(x)
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(8, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model
