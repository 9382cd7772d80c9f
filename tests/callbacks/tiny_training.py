"""A training of milliseconds, on a clock that only moves when it is told to."""

import functools

import kdist
import keras
import numpy as np
import tensorflow as tf

STEP_SECONDS = 0.5
VALIDATION_SECONDS = 100.0
OTHER_CALLBACK_SECONDS = 10.0
IMAGES = 10
BATCH = 4
STEPS = 3
VALIDATION_IMAGES = 6


class FakeClock:
    """Seconds since it was made, moved by `Ticker` alone."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Ticker(keras.callbacks.Callback):
    """Moves a clock: a step, a validation and the end of an epoch take their seconds."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.executions = []

    def get_state(self):
        return {}

    def set_state(self, state):
        """Time goes on."""

    def on_train_batch_end(self, batch, logs=None):
        self.clock.now += STEP_SECONDS
        self.executions.append((batch, logs))

    def on_test_end(self, logs=None):
        self.clock.now += VALIDATION_SECONDS

    def on_epoch_end(self, epoch, logs=None):
        self.clock.now += OTHER_CALLBACK_SECONDS


class Accuracies(keras.callbacks.Callback):
    """Puts given values into `logs`; None leaves the name out, as an epoch without validation."""

    def __init__(self, values, name="val_accuracy"):
        super().__init__()
        self.values = values
        self.name = name

    def on_epoch_end(self, epoch, logs=None):
        logs.pop(self.name, None)
        if self.values[epoch] is not None:
            logs[self.name] = self.values[epoch]


def images(count=IMAGES):
    """Black images of two classes: whatever a model has learnt, its accuracy is 1/2."""
    return np.zeros((count, 3), "float32"), np.arange(count) % 2


def batches(count=IMAGES):
    return tf.data.Dataset.from_tensor_slices(images(count)).batch(BATCH)


def tiny_model(*, replicas=None, model_class=keras.Model, metrics=("accuracy",), **compile_options):
    """A new compiled model, on so many logical CPUs or without a strategy."""
    strategy = (
        kdist.MirroredStrategy(replicas=replicas) if replicas else tf.distribute.get_strategy()
    )
    with strategy.scope():
        inputs = keras.Input((3,))
        # Frozen, so that it changes nothing, and gives a monitor the same to say in every fit.
        x = keras.layers.BatchNormalization(trainable=False, name="norm")(inputs)
        outputs = keras.layers.Dense(2, activation="softmax")(x)
        model = model_class(inputs, outputs)
        loss = "sparse_categorical_crossentropy"
        model.compile("sgd", loss, metrics=list(metrics), **compile_options)
    return model


# Tracing takes far longer than such a training does.
traced_model = functools.cache(tiny_model)


def tiny_fit(callbacks, *, model=None, epochs=3, validate=True, **options):
    """Fit a tiny model, quietly unless told otherwise, and return its history."""
    options = {"x": batches(), "verbose": 0, "shuffle": False} | options
    if validate:
        options["validation_data"] = batches(VALIDATION_IMAGES)
    return (model or traced_model()).fit(epochs=epochs, callbacks=callbacks, **options).history
