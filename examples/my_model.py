"""A model and data of your own, for any command of kdist.

    kdist train examples/my_model.py:build --epochs 5 --replicas 2 --monitor val_accuracy
    kdist sweep scaling examples/my_model.py:build --replicas 1,2
    kdist check examples/my_model.py:build
    kdist find rate examples/my_model.py:build
    python examples/my_model.py     # tunes it with KerasTuner on all replicas

The model learns to tell the points of two spirals apart; the data need no download.
"""

import kdist
import keras
import keras_tuner
import numpy as np


def build(hp=None):
    """Return a compiled model.

    The learning rate is for one replica, and `--lr-rule` scales it. KerasTuner draws `hp`; kdist's
    commands call `build()`, which uses the defaults.
    """
    if hp is None:
        hp = keras_tuner.HyperParameters()
    model = keras.Sequential([keras.Input((2,))])
    for _ in range(hp.Int("layers", 1, 3, default=2)):
        model.add(keras.layers.Dense(hp.Choice("units", [16, 32, 64], default=32), "relu"))
        model.add(keras.layers.BatchNormalization(momentum=0.9))
    model.add(keras.layers.Dense(1, "sigmoid"))
    rate = hp.Float("learning_rate", 1e-3, 3e-2, sampling="log", default=1e-2)
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=["accuracy"])
    return model


def data():
    """Return training and validation data: arrays (x, y), (x_val, y_val).

    kdist makes the batches, `--batch-size` samples for each replica. Sample weights are a third
    array. The function `batches` below returns batches instead.
    """
    x, y = _make_spirals(2000, seed=0)
    return (x[:1600], y[:1600]), (x[1600:], y[1600:])


def batches(batch_size):
    """Return the same data as `tf.data.Dataset`s, for `--data batches`.

    `batch_size` is the global batch of all replicas. A function without this argument decides the
    batches itself, and `--batch-size` is refused.
    """
    import tensorflow as tf

    training, validation = data()
    return (
        tf.data.Dataset.from_tensor_slices(training).shuffle(1600, seed=0).batch(batch_size),
        tf.data.Dataset.from_tensor_slices(validation).batch(batch_size),
    )


def _make_spirals(points, *, seed):
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, points)
    turn = 3 * np.pi * np.sqrt(random.uniform(size=points))
    angle = turn + np.pi * label
    x = turn[:, None] / 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (x + random.normal(scale=0.02, size=x.shape)).astype("float32"), label.astype("int32")


def main():
    """Tune the model: stock KerasTuner, whose trials train on all replicas."""
    tuner = keras_tuner.RandomSearch(
        build,
        objective="val_accuracy",
        max_trials=4,
        distribution_strategy=kdist.MirroredStrategy(),
        directory="runs",
        project_name="my-model",
    )
    (x, y), validation = data()
    tuner.search(x, y, validation_data=validation, batch_size=32, epochs=3)
    tuner.results_summary(num_trials=1)


if __name__ == "__main__":
    main()
