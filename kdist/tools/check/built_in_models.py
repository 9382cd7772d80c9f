"""The small models of `kdist check --devices`."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ...training.user_model.user_functions import UserFunctions

_FEATURES, _CLASSES, _WORDS, _LENGTH = 12, 4, 20, 6


def _make_numbers() -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(48, _FEATURES)), draw.integers(0, _CLASSES, 48)


def _make_words() -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    return draw.integers(0, _WORDS, (48, _LENGTH)), draw.integers(0, _CLASSES, 48)


def _make_images() -> tuple[Any, Any]:
    draw = np.random.default_rng(2)
    return draw.normal(size=(48, 8, 8, 3)), draw.integers(0, _CLASSES, 48)


def _make_model(
    shape: tuple[int, ...], *hidden: layers.Layer, optimizer: Any = None, **options: Any
) -> keras.Model:
    last = layers.Dense(_CLASSES, "softmax")
    model = keras.Sequential([keras.Input(shape), *hidden, last])
    model.compile(
        optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **options,
    )
    return model


def _make_dense(*later: layers.Layer, **options: Any) -> keras.Model:
    return _make_model((_FEATURES,), layers.Dense(16, "tanh"), *later, **options)


def _make_batch_norm() -> keras.Model:
    hidden = [layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    return _make_model((8, 8, 3), *hidden, layers.GlobalAveragePooling2D())


def _make_lstm() -> keras.Model:
    return _make_model((_LENGTH,), layers.Embedding(_WORDS, 8, mask_zero=True), layers.LSTM(8))


def _make_embedding() -> keras.Model:
    return _make_model((_LENGTH,), layers.Embedding(_WORDS, 8), layers.GlobalAveragePooling1D())


class CustomStep(keras.Model):
    """Model whose loss compares all rows of a batch, and whose gradients are clipped together."""

    def train_step(self, data: Any) -> dict[str, Any]:
        """Return the loss."""
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            similarities = ops.matmul(outputs, ops.transpose(outputs))
            loss = self.compute_loss(x, y, outputs) + ops.mean(ops.max(similarities, axis=0))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def _make_custom_step() -> keras.Model:
    inputs = keras.Input((_FEATURES,))
    outputs = layers.Dense(_CLASSES, "softmax")(layers.Dense(16, "tanh")(inputs))
    model = CustomStep(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model


_BUILDERS: dict[str, tuple[Callable[[], keras.Model], Callable[[], Any]]] = {
    "convolution and batch norm": (_make_batch_norm, _make_images),
    "dropout": (lambda: _make_dense(layers.Dropout(0.3)), _make_numbers),
    "clipped gradients": (
        lambda: _make_dense(optimizer=keras.optimizers.Adam(0.01, clipnorm=0.05)),
        _make_numbers,
    ),
    "LSTM with a mask": (_make_lstm, _make_words),
    "embedding": (_make_embedding, _make_words),
    "custom train_step": (_make_custom_step, _make_numbers),
    "accumulated gradients": (
        lambda: _make_dense(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)),
        _make_numbers,
    ),
    "XLA": (lambda: _make_dense(jit_compile=True), _make_numbers),
}
BUILT_IN_MODELS = {
    name: UserFunctions(build=build, make_data=make_data)
    for name, (build, make_data) in _BUILDERS.items()
}
"""Functions that make a compiled model and its data, by name of the model."""
