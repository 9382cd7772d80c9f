"""Trainings that are killed and resumed in one process, compared with one that was not."""

import math
import os
import signal
import weakref

import kdist
import keras
import numpy as np
from kdist._upstream.keras_callback_states import STATEFUL
from kdist._upstream.seeds import make_global_seed_state
from kdist.callbacks import Checkpoint
from kdist.checkpoint.variable_values import (
    assign_values,
    copy_values,
    metric_variables,
    state_variables,
)

SAMPLES, BATCH, STEPS, EPOCHS = 44, 8, 6, 3
X = np.random.default_rng(0).normal(size=(SAMPLES, 8)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, SAMPLES)


VALIDATION = "validation"
_beginnings = weakref.WeakKeyDictionary()


class KilledError(Exception):
    """The process is gone."""


class Kill(keras.callbacks.Callback):
    """Ends the fit in its n-th step, or in its first validation.

    No callback behind it, as `Checkpoint` is, learns of that step.
    """

    def __init__(self, step):
        super().__init__()
        self._step = step
        self._seen = 0

    def get_state(self):
        return {}

    def set_state(self, state):
        """Counts the steps of its own process."""

    def on_train_batch_end(self, batch, logs=None):
        self._seen += self.model.steps_per_execution
        if self._step != VALIDATION and self._seen >= (self._step or math.inf):
            self.kill()

    def on_test_batch_end(self, batch, logs=None):
        if self._step == VALIDATION:
            self.kill()

    def kill(self):
        raise KilledError


class Terminate(Kill):
    """Sends SIGTERM instead."""

    def kill(self):
        self._step = None
        os.kill(os.getpid(), signal.SIGTERM)


class Trained:
    """What a training has reached."""

    def __init__(self, model, history, callbacks=()):
        self.history = {**history.history, "epoch": history.epoch}
        arrays = copy_values(state_variables(model))
        self.arrays = {name: a.tobytes() for name, a in arrays.items()}
        self.values = arrays
        self.states = [_state(callback) for callback in callbacks]

    def __eq__(self, other):
        return not self.differences(other)

    def differences(self, other):
        """Names of what is not equal bit for bit."""
        names = {*self.arrays, *other.arrays}
        found = [n for n in sorted(names) if self.arrays.get(n) != other.arrays.get(n)]
        for name in {*self.history, *other.history}:
            if repr(self.history.get(name)) != repr(other.history.get(name)):
                found.append(f"{name}: {self.history.get(name)} {other.history.get(name)}")
        pairs = zip(self.states, other.states, strict=True)
        return found + [f"{a} {b}" for a, b in pairs if repr(a) != repr(b)]


def spoil(model):
    """Another process's model: every value is another, so that each has to be restored."""
    for variables in (state_variables(model), metric_variables(model)):
        arrays = copy_values(variables)
        assign_values(variables, {n: a + 8 * np.ones_like(a) for n, a in arrays.items()})


def network():
    inputs = keras.Input((8,))
    x = keras.layers.Dense(16, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dropout(0.3)(x)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))


def momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def compiled(replicas=1, make_optimizer=momentum, metrics=("accuracy",), **options):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    model = strategy.build(network)
    with strategy.scope():
        model.compile(
            make_optimizer(),
            "sparse_categorical_crossentropy",
            metrics=list(metrics),
            **options,
        )
    return model


class Training:
    """A model that is trained again and again from the same beginning.

    Args:
        model: The compiled model.
        data: Arguments of `fit`, or a function that makes them.
        make_callbacks: Makes those of a fit.
        **options: Of `fit`.
    """

    def __init__(self, model, data=(X, Y), make_callbacks=list, **options):
        self.model = model
        self.make_callbacks = make_callbacks
        self.data = data
        self.options = {
            "epochs": EPOCHS,
            "verbose": 0,
            "shuffle": False,
            "batch_size": BATCH,
            "validation_data": (X[:20], Y[:20]),
        } | options
        make_global_seed_state(model.distribute_strategy)

    def reset(self):
        """Give the model the values that it had when it was first used."""
        if self.model not in _beginnings:
            with self.model.distribute_strategy.scope():
                self.model.optimizer.build(self.model.trainable_variables)
            _beginnings[self.model] = copy_values(state_variables(self.model))
        assign_values(state_variables(self.model), _beginnings[self.model])

    def fit(self, *more, **options):
        callbacks = self.make_callbacks()
        data = self.data() if callable(self.data) else self.data
        try:
            history = self.model.fit(*data, callbacks=[*callbacks, *more], **self.options | options)
        except BaseException:
            for callback in callbacks:
                if isinstance(callback, keras.callbacks.CSVLogger):
                    callback.csv_file.close()  # as the end of a process does
            raise
        return Trained(self.model, history, callbacks)

    def uninterrupted(self, **options):
        self.reset()
        return self.fit(**options)

    def killed(self, folder, *kills, every_steps=1, kill=Kill, **options):
        """Train from the beginning, killed and resumed several times.

        Args:
            folder: For the checkpoints.
            *kills: For each process, when it is killed.
            every_steps: Of `Checkpoint`.
            kill: How.
            **options: Of the last `fit`.
        """
        self.reset()
        for step in kills:
            try:
                self.fit(kill(step), Checkpoint(folder, every_steps=every_steps, verbose=0))
            except (KilledError, SystemExit):
                spoil(self.model)
            else:
                raise AssertionError("it was not killed")
        return self.resumed(folder, **options)

    def resumed(self, folder, **options):
        return self.fit(Checkpoint(folder, verbose=0, resume="must"), **options)


def _state(callback):
    if hasattr(callback, "get_state"):
        return callback.get_state()
    names = next((n for k, n in STATEFUL.items() if isinstance(callback, k)), ())
    return {name: getattr(callback, name) for name in names}
