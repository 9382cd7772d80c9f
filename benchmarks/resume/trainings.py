"""The training that is killed: dropout, augmentation, momentum, averages, accumulation."""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .candidates import Candidate
from .forked import Forked, Say

BATCH, SAMPLES = 16, 156
STEPS = 10  # of an epoch, the last of 12 samples
DATA = ("own pipeline", "tf.data", "arrays")

_RANDOM = np.random.default_rng(0)
IMAGES = _RANDOM.integers(0, 256, (SAMPLES, 12, 12, 1), dtype="uint8")
LABELS = _RANDOM.integers(0, 10, SAMPLES)


def train(
    say: Say, *, data: str, replicas: int, epochs: int, candidate: Candidate | None, folder: Path
) -> dict[str, Any]:
    """Train in a process of its own, from the beginning or from what is in the folder.

    Args:
        say: Sends "ready" as the fit begins, then the number of each step.
        data: One of `DATA`.
        replicas: Logical CPUs that the batch is divided over.
        epochs: Of the training.
        candidate: Saves and resumes it.
        folder: For its files, and for the weights that the training ends with.

    Returns:
        Digests of all that the training has reached.
    """
    import keras
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    keras.utils.set_random_seed(1)
    model = _compiled(replicas)
    callbacks, first = _callbacks(), 0
    if candidate is not None:
        with model.distribute_strategy.scope():
            saving, first = candidate.callback(folder / "checkpoints", model)
        callbacks.append(saving)
    history = model.fit(
        **_data(data),
        epochs=epochs,
        initial_epoch=first,
        verbose=0,
        validation_data=(IMAGES[:40].astype("float32"), LABELS[:40]),
        callbacks=[_steps(say), *callbacks],
    )
    return _result(model, history, callbacks[:2], folder)


def finish(training: Callable[[Say], Any], *, epochs: int) -> dict[str, Any]:
    """Let a training that was killed reach its end, and return what `train` does.

    Or `{"error": …}`, also where it was not resumed but began anew.
    """
    with Forked(training) as process:
        sent = [*process]
    last = sent[-1] if sent else None
    if not isinstance(last, dict):
        return {"error": "the process crashed"}
    if "error" not in last and sum(isinstance(one, int) for one in sent) >= epochs * STEPS:
        return {"error": "begins anew"}
    return last


def _compiled(replicas: int) -> Any:
    import kdist
    import keras

    strategy = kdist.MirroredStrategy(replicas=replicas)
    model = strategy.build(_network)
    with strategy.scope():
        optimizer = keras.optimizers.SGD(
            0.05, momentum=0.9, nesterov=True, use_ema=True, gradient_accumulation_steps=4
        )
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _network() -> Any:
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.RandomFlip("horizontal"),
            layers.RandomTranslation(0.1, 0.1),
            layers.Rescaling(1 / 128),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def _data(kind: str) -> dict[str, Any]:
    """The arguments of `fit`; each kind is shuffled anew in every epoch, by a seed."""
    import kdist
    import tensorflow as tf

    images = IMAGES.astype("float32")
    if kind == "arrays":
        return {"x": images, "y": LABELS, "batch_size": BATCH, "shuffle": True}
    if kind == "tf.data":
        rows = tf.data.Dataset.from_tensor_slices((images, LABELS))
        shuffled = rows.shuffle(SAMPLES, seed=3, reshuffle_each_iteration=True)
        return {"x": shuffled.batch(BATCH).prefetch(2)}
    return {
        "x": kdist.data.training_batches(
            IMAGES,
            LABELS,
            batch_size=BATCH,
            seed=1,
            standardization=lambda batch: batch,
        )
    }


def _callbacks() -> list[Any]:
    import keras

    return [
        keras.callbacks.EarlyStopping("loss", patience=99, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=2, factor=0.9),
    ]


def _steps(say: Say) -> Any:
    """Says where the training is."""
    import keras

    class Steps(keras.callbacks.Callback):
        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            """It counts the steps of its own process."""

        def on_train_begin(self, logs: Any = None) -> None:
            say("ready")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            say(batch)

    return Steps()


def _result(model: Any, history: Any, callbacks: list[Any], folder: Path) -> dict[str, Any]:
    from kdist.checkpoint.values import copy_values, state_variables

    arrays, _ = copy_values(state_variables(model))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "trained.npz", "wb") as file:
        np.savez(file, **{name.replace("/", "|"): array for name, array in arrays.items()})
    early, plateau = callbacks
    return {
        "arrays": {n: hashlib.sha256(a.tobytes()).hexdigest() for n, a in arrays.items()},
        "history": {name: [repr(one) for one in row] for name, row in history.history.items()},
        "epochs": history.epoch,
        "callbacks": repr([early.best, early.wait, early.best_epoch, plateau.best, plateau.wait]),
    }


def largest_difference(one: Path, other: Path) -> float:
    """Return the largest difference between the weights that two trainings ended with."""
    with np.load(one / "trained.npz") as first, np.load(other / "trained.npz") as second:
        return max(
            float(np.max(np.abs(first[name].astype("float64") - second[name]), initial=0))
            for name in first.files
            if "seed" not in name
        )
