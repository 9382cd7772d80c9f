"""Networks of the benchmarks besides the WideResNet of any size: model, data and optimizer."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ..models import WideResNet
from .workload import CLASSES, IMAGE_SHAPE, random_images

_WORDS, _TOKENS, _COLUMNS = 5000, 64, 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """What a candidate trains.

    Attributes:
        make: Makes the model, which gives the probabilities of 10 classes.
        data: From a number of samples to random inputs and labels, always the same.
        optimizer: Makes the optimizer.
    """

    make: Callable[[], Any]
    data: Callable[[int], tuple[Any, Any]]
    optimizer: Callable[[], Any] = keras.optimizers.Adam


def _transformer() -> Any:
    """An encoder of 4 layers, 128 wide, with dropout, as in keras.io's text classifier."""
    width, heads, rate = 128, 4, 0.1
    tokens = keras.Input((_TOKENS,), dtype="int32")
    places = keras.ops.arange(_TOKENS)
    x = keras.layers.Embedding(_WORDS, width)(tokens)
    x = x + keras.layers.Embedding(_TOKENS, width)(places)
    for _ in range(4):
        attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=rate)
        x = keras.layers.LayerNormalization()(x + attention(x, x))
        hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
        hidden = keras.layers.Dropout(rate)(keras.layers.Dense(width)(hidden))
        x = keras.layers.LayerNormalization()(x + hidden)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(CLASSES, activation="softmax")(x))


def _lstm() -> Any:
    return keras.Sequential(
        [
            keras.Input((_TOKENS,), dtype="int32"),
            keras.layers.Embedding(_WORDS, 64),
            keras.layers.LSTM(64, dropout=0.1),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def _table() -> Any:
    dense = [keras.layers.Dense(128, activation="relu") for _ in range(3)]
    classes = keras.layers.Dense(CLASSES, activation="softmax")
    return keras.Sequential([keras.Input((_COLUMNS,)), *dense, classes])


def _mobilenet() -> Any:
    return keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, weights=None, classes=CLASSES
    )


def _wide_resnet() -> Any:
    return WideResNet(16, 1, input_shape=IMAGE_SHAPE, classes=CLASSES)


def _texts(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, _WORDS, (count, _TOKENS), dtype="int32")
    return tokens, rng.integers(0, CLASSES, count)


def _rows(shape: tuple[int, ...]) -> Callable[[int], tuple[Any, Any]]:
    def data(count: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(count, *shape)).astype("float32")
        return rows, rng.integers(0, CLASSES, count)

    return data


NETWORKS = {
    "transformer": Network(make=_transformer, data=_texts),
    "lstm": Network(make=_lstm, data=_texts),
    "table": Network(make=_table, data=_rows((_COLUMNS,))),
    "mobilenet": Network(make=_mobilenet, data=_rows((32, 32, 3)), optimizer=keras.optimizers.SGD),
    "wide_resnet": Network(make=_wide_resnet, data=random_images, optimizer=keras.optimizers.SGD),
}
"""By the name that a candidate's settings have."""
