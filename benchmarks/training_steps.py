"""Time training steps of `model.fit`."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class EpochTimer(keras.callbacks.Callback):
    """Measures the seconds of an epoch, without the beginning and the end of `fit`."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Read it."""
        self.seconds = time.perf_counter() - self.start


class _StepEnds(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())  # Keras has waited for the step's logs


def random_images(count: int) -> tuple[Any, Any]:
    """Make random float32 images of Fashion-MNIST's shape with labels, always the same."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 28, 28, 1)).astype("float32"), rng.integers(0, 10, count)


def random_batch(size: int) -> tf.data.Dataset:
    """Return a dataset with one random batch of Fashion-MNIST's shape."""
    return tf.data.Dataset.from_tensor_slices(random_images(size)).batch(size)


def steps(model: keras.Model, batch: tf.data.Dataset, count: int) -> Callable[[], float]:
    """Return a function that times `count` steps of a `fit`, after a first step.

    The start of `fit`, which happens once per training, is excluded.
    """
    data, ends = batch.repeat(count + 1), _StepEnds()

    def timed_steps() -> float:
        model.fit(data, verbose=0, shuffle=False, callbacks=[ends])
        return ends.ends[-1] - ends.ends[0]

    return timed_steps
