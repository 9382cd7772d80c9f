"""What the processes of a `Group` run: by name, functions that time one turn."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import os
import time
from collections.abc import Callable
from typing import Any

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist.models import WideResNet
from kdist.workers.multi_worker_strategy import BUCKET_BYTES

from ..training_steps import random_images
from .bare_collectives import bare, recording, without_collectives

Turns = dict[str, Callable[[], dict[str, float]]]


class _Steps(keras.callbacks.Callback):
    """Times the steps of a `fit` after its first."""

    stops_in_epoch = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.times: list[tuple[float, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append((time.perf_counter(), time.process_time()))

    def seconds_per_step(self) -> dict[str, float]:
        """Return the seconds per step, by the clock and of the processor."""
        wall, own = np.subtract(self.times[-1], self.times[0]) / (len(self.times) - 1)
        return {"seconds": float(wall), "processor_seconds": float(own)}


def wide_resnet(*, replicas: int, batch: int, steps: int) -> Turns:
    """WRN-16-1 in `fit`, as a worker of a cluster or in one process."""
    model = _compiled(_strategy(replicas), _wide_resnet)
    return {"train": _steps(model, random_images(batch), batch, steps)}


def collectives(*, batch: int, steps: int) -> Turns:
    """WRN-16-1 with and without its collectives, and these alone, by TensorFlow's all-reduce."""
    strategy = _strategy(1)
    turns: Turns = {}
    data = random_images(batch)
    with recording() as shapes:
        turns["with"] = _steps(_compiled(strategy, _wide_resnet), data, batch, steps)
        turns["with"]()
    with without_collectives():
        turns["without"] = _steps(_compiled(strategy, _wide_resnet), data, batch, steps)
        turns["without"]()
    return turns | {"bare": bare(strategy, shapes, steps)}


def slow_link(*, megabytes: float, layers: int, batch: int, steps: int) -> Turns:
    """Dense layers with this many megabytes of gradients, in buckets and in one pack."""
    strategy = _strategy(1)
    units = int((megabytes * 1e6 / 4 / layers) ** 0.5)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(batch, units)).astype("f4"), rng.integers(0, 10, batch)

    def make() -> keras.Model:
        dense = [keras.layers.Dense(units, activation="relu") for _ in range(layers)]
        classes = keras.layers.Dense(10, activation="softmax")
        return keras.Sequential([keras.Input((units,)), *dense, classes])

    turns: Turns = {}
    for name, bucket_bytes in {"buckets": BUCKET_BYTES, "one pack": 0}.items():
        strategy.bucket_bytes = bucket_bytes
        turns[name] = _steps(_compiled(strategy, make), data, batch, steps)
        turns[name]()  # traced in this way
    return turns


def _strategy(replicas: int) -> Any:
    if "TF_CONFIG" not in os.environ:
        return kdist.MirroredStrategy(replicas=replicas)
    return kdist.MultiWorkerMirroredStrategy(replicas=replicas)


def _wide_resnet() -> keras.Model:
    return WideResNet(depth=16, width=1, input_shape=(28, 28, 1), classes=10)


def _compiled(strategy: Any, make: Callable[[], keras.Model]) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = strategy.build(make)
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.01)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _steps(
    model: keras.Model, rows: tuple[Any, Any], batch: int, steps: int
) -> Callable[[], dict[str, float]]:
    data = tf.data.Dataset.from_tensor_slices(rows).batch(batch).repeat(steps + 1)
    times = _Steps()

    def turn() -> dict[str, float]:
        model.fit(data, verbose=0, shuffle=False, callbacks=[times])
        return times.seconds_per_step()

    return turn
