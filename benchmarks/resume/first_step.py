"""From the call of `fit` to the end of the first new step, compared with a fresh fit's."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from .forked import result_of

_SAMPLES, _BATCH = 12_800, 32
_EPOCHS = 40
_STEPS = _SAMPLES // _BATCH
# Epochs from 0, and steps of it that were trained.
PLACES = ((0, 1), (0, _STEPS - 1), (1, 0), (20, 200), (39, _STEPS - 1))


def measure(folder: Path, *, data: str, rounds: int) -> dict[str, Any]:
    """Resume WRN-16-4 with momentum and average, on data of 400 steps, at several places.

    All is traced before. The checkpoint of each place is that of one step, with the name that says
    where the training was.

    Args:
        folder: An empty folder.
        data: "own pipeline", "tf.data" or "arrays".
        rounds: Times that each is measured, in turn.

    Returns:
        By place: the seconds beyond those of a fresh fit, of each round.
    """
    return dict(result_of(lambda _: _measure(folder, data, rounds)))


class _DoneError(Exception):
    """The first step is done."""


def _measure(folder: Path, data: str, rounds: int) -> dict[str, list[float]]:
    import kdist
    import keras
    from kdist.models import WideResNet

    keras.utils.set_random_seed(0)
    strategy = kdist.MirroredStrategy(replicas=1)
    model = strategy.build(
        lambda: WideResNet(depth=16, width=4, input_shape=(28, 28, 1), classes=10)
    )
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9, use_ema=True)
        model.compile(optimizer, "sparse_categorical_crossentropy")
    options = _options(data)
    whole = folder / "whole"
    _first_step(model, options, whole)
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        fresh = _first_step(model, options, None)
        for epoch, batch in PLACES:
            here = folder / "resumed"
            shutil.rmtree(here, ignore_errors=True)
            here.mkdir()
            for path in whole.glob("*.safetensors"):
                digest = path.name.rpartition("-")[2]
                os.link(path, here / f"e{epoch:06d}-b{batch:09d}-{digest}")
            seconds = _first_step(model, options, here) - fresh
            results.setdefault(f"epoch {epoch + 1}, step {batch + 1}", []).append(seconds)
    return results


def _first_step(model: Any, options: dict[str, Any], folder: Path | None) -> float:
    """Seconds of a fit until its first step is done, with `Checkpoint` in a folder."""
    import keras
    from kdist.callbacks import Checkpoint

    ends: list[float] = []

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())
            if folder is None or folder.name != "whole" or len(ends) == 2:
                raise _DoneError

    saving = [] if folder is None else [Checkpoint(folder, every_steps=1, verbose=0)]
    began = time.perf_counter()
    try:
        model.fit(epochs=_EPOCHS, verbose=0, callbacks=[Stop(), *saving], **options)
    except _DoneError:
        return ends[0] - began
    raise RuntimeError("no step was trained")


def _options(data: str) -> dict[str, Any]:
    import kdist
    import tensorflow as tf

    images = np.random.default_rng(0).integers(0, 256, (_SAMPLES, 28, 28, 1), dtype="uint8")
    labels = np.arange(_SAMPLES) % 10
    if data == "arrays":
        return {"x": images.astype("float32"), "y": labels, "batch_size": _BATCH}
    if data == "tf.data":
        rows = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(_SAMPLES, seed=1)
        return {"x": rows.batch(_BATCH)}
    standardization = kdist.data.Standardization.of(images)
    return {
        "x": kdist.data.training_batches(
            images, labels, batch_size=_BATCH, seed=1, standardization=standardization
        )
    }
