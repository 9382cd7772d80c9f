"""Fits that keep the batches which they train on."""

import warnings

import keras
import numpy as np
import tensorflow as tf
from kdist._upstream import all_patches
from kdist._upstream.fit import start_fit_at


class Recorder(keras.Model):
    """Trains nothing; keeps the rows that each replica is given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, x):
        return x

    def train_step(self, data):
        rows = data[0] if isinstance(data, tuple) else data
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        self.seen.append((f"replica {int(replica)}", np.asarray(rows)))
        return {"loss": tf.constant(0.0)}


class Position(keras.callbacks.Callback):
    """Begins a fit at an epoch and a batch, and keeps what Keras says of each step."""

    def __init__(self, start):
        super().__init__()
        self.start, self.inexact = start, None

    def on_train_begin(self, logs=None):
        if self.start is not None:
            epoch, batch = self.start
            self.inexact = start_fit_at(self.model, epoch=epoch, batch=batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        self.model.seen.append((self.epoch, batch))


def record(make, *, start=None, strategy=None, callbacks=(), steps_per_execution=1, **options):
    """What a fit trains, and what `start_fit_at` says of the data.

    Args:
        make: Called after seeding, returns the first argument of `fit`.
        start: Epoch and batch to begin at.
        strategy: Of the model.
        callbacks: Besides the one that records.
        steps_per_execution: Of the model.
        options: Arguments of `fit`.

    Returns:
        A list of `((epoch, step), None)` and `("replica 0", rows)` in turn, and the sentence.
    """
    all_patches.install_for_data()
    keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = Recorder()
        model.compile(run_eagerly=True, steps_per_execution=steps_per_execution)
    position = Position(start)
    with warnings.catch_warnings():
        # Of data that end where no epoch does, of `shuffle=True`, the default, and of a step that
        # is not traced.
        expected = (
            ".*ran out of data|.shuffle=True. was passed|the train_step of Recorder runs eager"
        )
        warnings.filterwarnings("ignore", message=expected)
        model.fit(make(), verbose=0, callbacks=[*callbacks, position], **({"epochs": 4} | options))
    return model.seen, position.inexact


def steps_of(seen):
    """The epochs and steps, counted from 0."""
    return [step for step in seen if not isinstance(step[0], str)]


def trained_from(seen, start):
    """What the fit that was not interrupted trains from an epoch and a batch on."""
    steps = [i for i, one in enumerate(seen) if not isinstance(one[0], str) and one >= start]
    return seen[min(steps, default=len(seen)) :]


def assert_same(seen, expected):
    assert steps_of(seen) == steps_of(expected)
    assert len(seen) == len(expected)
    for (whose, rows), (expected_whose, expected_rows) in zip(seen, expected, strict=True):
        assert whose == expected_whose
        np.testing.assert_array_equal(rows, expected_rows)
