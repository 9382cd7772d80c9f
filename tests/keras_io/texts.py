"""Classifiers of padded texts: an LSTM and a transformer."""

import keras
import numpy as np
from keras import layers, ops

WORDS, LENGTH = 20, 7
WIDTH, HEADS = 6, 2


def padded(samples):
    """Return texts of two words or more, zeros after their ends, and labels."""
    rng = np.random.default_rng(0)
    texts = rng.integers(1, WORDS, (samples, LENGTH))
    lengths = rng.integers(2, LENGTH + 1, (samples, 1))
    texts[np.arange(LENGTH) >= lengths] = 0
    return texts, rng.integers(0, 2, samples)


def lstm():
    """A masked embedding, a bidirectional LSTM with dropout, and clipped Adam."""
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 6, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(4, dropout=0.2, recurrent_dropout=0.2))(x)
    x = layers.Dropout(0.5)(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    adam = keras.optimizers.Adam(0.01, clipnorm=0.05)
    model.compile(adam, "binary_crossentropy", metrics=["accuracy"])
    return model


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self):
        super().__init__()
        self.token_embedding = layers.Embedding(input_dim=WORDS, output_dim=WIDTH)
        self.position_embedding = layers.Embedding(input_dim=LENGTH, output_dim=WIDTH)

    def call(self, tokens):
        positions = ops.arange(ops.shape(tokens)[-1])
        return self.token_embedding(tokens) + self.position_embedding(positions)


class TransformerBlock(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=HEADS, key_dim=WIDTH)
        parts = [layers.Dense(8, activation="relu"), layers.Dense(WIDTH)]
        self.feed_forward = keras.Sequential(parts)
        self.attention_norm = layers.LayerNormalization(epsilon=1e-6)
        self.feed_forward_norm = layers.LayerNormalization(epsilon=1e-6)
        self.attention_dropout = layers.Dropout(0.1)
        self.feed_forward_dropout = layers.Dropout(0.1)

    def call(self, x, training=False):
        attended = self.attention_dropout(self.attention(x, x), training=training)
        x = self.attention_norm(x + attended)
        forwarded = self.feed_forward_dropout(self.feed_forward(x), training=training)
        return self.feed_forward_norm(x + forwarded)


def transformer():
    """Token and position embeddings, and one block with dropout."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = TransformerBlock()(TokenAndPositionEmbedding()(inputs))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(8, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
    adam = keras.optimizers.Adam(0.003)
    model.compile(adam, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
