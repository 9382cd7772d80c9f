"""Time training steps of `model.fit`."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from kdist.bench.workload import random_images


class _StepEnds(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())  # Keras has waited for the step's logs


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
