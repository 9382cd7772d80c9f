"""Small networks of ten classes, their random data and their training."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist.models import WideResNet

CLASSES, WORDS, TOKENS = 10, 5000, 64
tf.get_logger().setLevel("ERROR")


class Network(NamedTuple):
    """A model of ten classes with its samples and its optimizer.

    Attributes:
        make: Makes the model.
        shape: Shape of a sample.
        words: Samples are integers below this number; 0 for real numbers.
        optimizer: Makes the optimizer.
        has_short_steps: Whether steps are so short that an execution needs many.
    """

    make: Callable[[], Any]
    shape: tuple[int, ...]
    words: int = 0
    optimizer: Callable[[], Any] = keras.optimizers.Adam
    has_short_steps: bool = False

    def random_samples(self, count: int) -> tuple[Any, Any]:
        """Return random samples and labels, always the same."""
        rng = np.random.default_rng(0)
        shape = (count, *self.shape)
        if self.words:
            return rng.integers(0, self.words, shape, "int32"), rng.integers(0, CLASSES, count)
        return rng.normal(size=shape).astype("float32"), rng.integers(0, CLASSES, count)


def make_momentum_sgd() -> Any:
    """Return SGD with momentum."""
    return keras.optimizers.SGD(0.01, momentum=0.9)


def make_wide_resnet(depth: int, width: int, size: int = 28, **options: Any) -> Network:
    """Return a WideResNet for gray images, with options of `kdist.models.WideResNet`."""
    shape = (size, size, 1)
    return Network(
        lambda: WideResNet(depth, width, input_shape=shape, classes=CLASSES, **options),
        shape,
        optimizer=make_momentum_sgd,
    )


def without_batch_norm(*, name: str, axis: int) -> Any:  # noqa: ARG001 - called as a batch norm is
    """Return a layer without effect, in place of a batch norm."""
    return keras.layers.Identity(name=name)


def make_transformer(
    *, words: int, tokens: int, width: int, heads: int, layers: int, has_positions: bool
) -> Network:
    """Return an encoder with dropout, as in keras.io's text classifier."""

    def make() -> Any:
        texts = keras.Input((tokens,), dtype="int32")
        x = keras.layers.Embedding(words, width)(texts)
        if has_positions:
            x = x + keras.layers.Embedding(tokens, width)(keras.ops.arange(tokens))
        for _ in range(layers):
            attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=0.1)
            x = keras.layers.LayerNormalization()(x + attention(x, x))
            hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
            hidden = keras.layers.Dropout(0.1)(keras.layers.Dense(width)(hidden))
            x = keras.layers.LayerNormalization()(x + hidden)
        x = keras.layers.GlobalAveragePooling1D()(x)
        return keras.Model(texts, keras.layers.Dense(CLASSES, activation="softmax")(x))

    return Network(make, (tokens,), words)


def make_lstm(*, words: int, tokens: int, width: int, **options: Any) -> Network:
    """Return an LSTM on words, with options of Keras's layer."""

    def make() -> Any:
        return keras.Sequential(
            [
                keras.Input((tokens,), dtype="int32"),
                keras.layers.Embedding(words, width),
                keras.layers.LSTM(width, **options),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ]
        )

    return Network(make, (tokens,), words)


def make_dense_network() -> Network:
    """Return dense layers on 32 columns."""

    def make() -> Any:
        dense = [keras.layers.Dense(128, activation="relu") for _ in range(3)]
        classes = keras.layers.Dense(CLASSES, activation="softmax")
        return keras.Sequential([keras.Input((32,)), *dense, classes])

    return Network(make, (32,), has_short_steps=True)


def make_model(network: Network, strategy: Any = None, **options: Any) -> Any:
    """Return the compiled model: in stock Keras, or under a strategy of TensorFlow or kdist.

    Args:
        network: The network.
        strategy: The strategy; with TensorFlow's strategy, batch norm is synchronized.
        options: Arguments of `compile`.
    """
    is_kdist = isinstance(strategy, kdist.MirroredStrategy | kdist.MultiWorkerMirroredStrategy)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = strategy.build(network.make) if is_kdist else network.make()
        if strategy is not None and not is_kdist:
            for layer in model.layers:
                if isinstance(layer, keras.layers.BatchNormalization):
                    layer.synchronized = True
        loss = "sparse_categorical_crossentropy"
        model.compile(network.optimizer(), loss, metrics=["accuracy"], **options)
    return model


class EpochTimer(keras.callbacks.Callback):
    """Measures an epoch, without the beginning and the end of `fit`.

    Attributes:
        seconds: Seconds of the clock.
    """

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Read the clock."""
        self.seconds = time.perf_counter() - self._began


def random_batches(network: Network, batch: int, steps: int) -> tf.data.Dataset:
    """Return cached random batches: speed is measured without an input pipeline."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices(network.random_samples(batch * steps)).batch(batch)
    return data.cache().prefetch(tf.data.AUTOTUNE).with_options(options)


def fit_epoch(model: Any, data: tf.data.Dataset) -> float:
    """Train an epoch, and return its seconds."""
    timer = EpochTimer()
    model.fit(data, verbose=0, shuffle=False, callbacks=[timer])
    return timer.seconds
