"""Trainings of several workers that are killed and resumed, from the chief's checkpoints."""

import functools
import itertools

import kdist
import keras
import numpy as np
import pytest
import resumed_training
from kdist._upstream.seeds import make_global_seed_state
from kdist.callbacks import Checkpoint
from kdist.checkpoint import checkpoint_files
from kdist.errors import NonFiniteWeightsError
from replicas import assert_equal
from resumed_training import (
    BATCH,
    STEPS,
    VALIDATION,
    Kill,
    KilledError,
    Terminate,
    Training,
    X,
    Y,
)
from worker_trainings import agree, refused

NOWHERE = "/dev/null/of the chief alone"


class KillUnasked(Kill):
    """The workers do not ask each other after every step."""

    stops_in_epoch = False


class TerminateOne(Terminate):
    """Sends SIGTERM to the last worker alone."""

    stops_in_epoch = False

    def kill(self):
        self._step = None
        strategy = self.model.distribute_strategy
        if strategy.worker == strategy.workers - 1:
            super().kill()


def adam():
    return keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)


def training_of(
    strategy, make=resumed_training.network, *, optimizer=adam, kind=Training, **options
):
    keras.utils.set_random_seed(0)
    model = strategy.build(make)
    with strategy.scope():
        model.compile(optimizer(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return kind(model, (X, Y), _callbacks, **{"epochs": 2, **options})


def standard(strategy):
    """One for many cases, as its step is traced once."""
    training = _standard(strategy)
    make_global_seed_state(strategy)  # which is lost between two cases
    return training


_standard = functools.cache(training_of)
_expected = functools.cache(lambda training: training.uninterrupted())


def _callbacks():
    return [keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)]


def checkpoint(strategy, folder, **options):
    """The chief alone can use the folder."""
    return Checkpoint(folder if strategy.is_chief else NOWHERE, verbose=0, **options)


def kill(training, strategy, folder, step, kind=KillUnasked, **options):
    """Train until all workers are killed, and lose everything."""
    options = {"every_steps": 1} | options
    try:
        training.fit(kind(step), checkpoint(strategy, folder, **options))
    except (KilledError, SystemExit) as error:
        resumed_training.spoil(training.model)
        return error
    raise AssertionError("it was not killed")


def killed(training, strategy, folder, *steps, **options):
    training.reset()
    for step in steps:
        kill(training, strategy, folder, step, **options)
    return training.fit(checkpoint(strategy, folder))


def same(found, expected):
    differences = [text[:200] for text in found.differences(expected)]
    assert not differences, differences


def resumes_bit_for_bit(strategy, folder):
    training = standard(strategy)
    expected = _expected(training)
    found = killed(training, strategy, folder / "killed", 3, STEPS - 1, VALIDATION)
    same(found, expected)


def resumes_from_a_remote_folder(strategy, folder):
    training = standard(strategy)
    expected = _expected(training)
    same(killed(training, strategy, f"file://{folder}/remote", 3, VALIDATION), expected)


class _Process(Training):
    """Each fit is that of a new process, with data of its own."""

    def fit(self, *more, **options):
        images = np.random.default_rng(0).integers(0, 255, (44, 8, 1, 1)).astype("uint8")
        own = kdist.data.training_batches(
            images, Y, batch_size=BATCH, seed=3, standardization=lambda batch: batch / 255 - 0.5
        )
        self.data = (own,)
        return super().fit(*more, **options)


def _flat():
    return keras.Sequential([keras.Input((8, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])


def resumes_at_its_place_in_the_data(strategy, folder):
    """Shuffled and augmented, by the epoch and the step."""
    training = training_of(strategy, _flat, kind=_Process, validation_data=None, batch_size=None)
    expected = training.uninterrupted()
    same(killed(training, strategy, folder / "data", STEPS + 3), expected)


def goes_on_with_other_workers(strategy, folder):
    """One replica, all workers, the chief's two, all workers: the model of one replica."""
    folder = folder / "elastic"
    all_workers = standard(strategy)
    if strategy.is_chief:
        alone = training_of(kdist.MirroredStrategy(replicas=1))
        expected = alone.uninterrupted()
        alone.reset()
        kill(alone, strategy, folder, 3)
    strategy.exchange("the chief's training", None)
    kill(all_workers, strategy, folder, STEPS - 1)
    if strategy.is_chief:
        kill(training_of(kdist.MirroredStrategy(replicas=2)), strategy, folder, 4)
    strategy.exchange("the chief's training", None)
    found = all_workers.fit(checkpoint(strategy, folder))
    if strategy.is_chief:
        for name, value in expected.values.items():
            np.testing.assert_allclose(found.values[name], value, rtol=0, atol=1e-6, err_msg=name)
        for name, value in expected.history.items():
            np.testing.assert_allclose(found.history[name], value, rtol=1e-5, err_msg=name)


def ends_all_by_the_signal_of_one(strategy, folder):
    training = standard(strategy)
    expected = _expected(training)
    folder = folder / "terminated"
    for step in (2, VALIDATION):
        training.reset()
        codes = kill(training, strategy, folder, step, kind=TerminateOne, every_steps=None).code
        agree(strategy, codes)
        assert codes == 143
        newest = strategy.exchange(
            "the newest", [g.path.name for g in checkpoint_files(folder)][:1]
        )
        assert newest[0]
        same(training.fit(checkpoint(strategy, folder)), expected)
        folder = folder.with_name("terminated in validation")


def saves_by_the_chiefs_clock(strategy, folder):
    """The others' clocks stand still."""
    clock = itertools.count(0.0, 0.6).__next__ if strategy.is_chief else lambda: 0.0
    training = standard(strategy)
    expected = _expected(training)
    training.reset()
    options = {"every_steps": None, "every_seconds": 1.0, "clock": clock, "keep": 99}
    kill(training, strategy, folder / "clock", STEPS + 4, **options)
    found = checkpoint_files(folder / "clock")
    if strategy.is_chief:
        assert {one.epoch for one in found if one.batch} == {0, 1}
    same(training.fit(checkpoint(strategy, folder / "clock")), expected)


def takes_the_checkpoint_before_a_damaged_one(strategy, folder):
    training = standard(strategy)
    expected = _expected(training)
    training.reset()
    folder = folder / "damaged"
    kill(training, strategy, folder, STEPS + 2)
    if strategy.is_chief:
        newest = checkpoint_files(folder)[0].path
        content = bytearray(newest.read_bytes())
        content[-20] ^= 1
        newest.write_bytes(content)
    strategy.exchange("the damage", None)
    same(training.fit(checkpoint(strategy, folder)), expected)


def says_why_it_cannot_resume(strategy, folder):
    training = standard(strategy)
    training.reset()
    folder = folder / "refusals"
    kill(training, strategy, folder, 3)
    other = training_of(strategy, optimizer=lambda: keras.optimizers.SGD(0.1))
    with refused("has checkpoints of another training", "optimizers"):
        other.fit(checkpoint(strategy, folder))
    training.reset()
    with refused('resume is "never", but'):
        training.fit(checkpoint(strategy, folder, resume="never"))
    with refused('resume is "must", but'):
        training.fit(checkpoint(strategy, folder / "none", resume="must"))
    with refused("cannot write", "regular file"):
        (folder.parent / "regular file").write_text("")
        training.fit(checkpoint(strategy, folder.parent / "regular file"))
    with refused("the workers differ at the start of Checkpoint: every_steps is"):
        training.fit(checkpoint(strategy, folder, every_steps=1 + strategy.worker))
    with refused("the callback that resumes it is Checkpoint on worker 0, None on worker"):
        callbacks = [checkpoint(strategy, folder)] if strategy.is_chief else []
        training.fit(*callbacks)


def stops_together_at_weights_that_are_nan(strategy, folder):
    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                weight = self.model.trainable_variables[0]
                weight.assign(np.full(weight.shape, np.nan))

    training = standard(strategy)
    training.reset()
    with pytest.raises(NonFiniteWeightsError) as error:
        training.fit(Spoil(), checkpoint(strategy, folder / "stopped", every_steps=2))
    agree(strategy, [error.value.variable, error.value.epoch, error.value.step])


def stays_stopped_by_another_worker(strategy, folder):
    """As by a limit of seconds that one worker reaches before the chief."""

    class Limit(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training |= strategy.worker == 1

    training = standard(strategy)
    training.reset()
    for callbacks in ([Limit()], []):
        training.fit(*callbacks, checkpoint(strategy, folder / "stopped by one"))
        assert training.model.optimizer.iterations.numpy() == STEPS // 2


def saves_metrics_of_many_values(strategy, folder):
    """Which are divided, like weights."""
    model = strategy.build(resumed_training.network)
    metric = keras.metrics.MeanIoU(3, sparse_y_pred=False)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
    model.fit(
        *(X, Y),
        batch_size=BATCH,
        validation_data=(X, Y),
        verbose=0,
        callbacks=[checkpoint(strategy, folder / "metrics", every_steps=1)],
    )


def is_saved_by_kerass_callback(strategy, folder):
    """By the chief alone; by all, where the optimizer's state is divided over them."""
    # Averages would take the place of the weights when training ends, after the last file.
    without_averages = lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)  # noqa: E731
    model = training_of(strategy, optimizer=without_averages).model
    path = folder / "model.keras"
    saving = keras.callbacks.ModelCheckpoint(path, verbose=1)
    model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[saving])
    agree(strategy, "the end of saving")
    saved = keras.models.load_model(path)
    state = [*model.get_weights(), *(one.numpy() for one in model.optimizer.variables)]
    found = [*saved.get_weights(), *(one.numpy() for one in saved.optimizer.variables)]
    assert_equal(found, state)


CASES = {
    one.__name__: one
    for one in (
        resumes_bit_for_bit,
        resumes_from_a_remote_folder,
        resumes_at_its_place_in_the_data,
        goes_on_with_other_workers,
        ends_all_by_the_signal_of_one,
        saves_by_the_chiefs_clock,
        takes_the_checkpoint_before_a_damaged_one,
        says_why_it_cannot_resume,
        stops_together_at_weights_that_are_nan,
        stays_stopped_by_another_worker,
        saves_metrics_of_many_values,
        is_saved_by_kerass_callback,
    )
}
