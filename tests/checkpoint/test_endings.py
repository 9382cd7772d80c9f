"""How a training ends that is saved: preempted, over, stopped, diverged, on a full disk."""

import errno
import signal

import keras
import numpy as np
import pytest
from kdist.callbacks import Checkpoint
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.checkpoint_folder import CheckpointStore
from kdist.errors import NonFiniteWeightsError
from resumed_training import (
    EPOCHS,
    STEPS,
    VALIDATION,
    Kill,
    KilledError,
    Terminate,
    Training,
    X,
    momentum,
    network,
)

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


@pytest.fixture(scope="module")
def model():
    model = network()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def expected(model):
    """What the training has reached that was not interrupted."""
    return Training(model).uninterrupted()


def places(folder):
    return [(checkpoint.epoch, checkpoint.batch) for checkpoint in checkpoint_files(folder)]


@pytest.mark.parametrize(
    ("step", "place"),
    [(1, (0, 1)), (STEPS, (0, STEPS)), (STEPS + 2, (1, 2)), (VALIDATION, (0, STEPS))],
)
def test_sigterm_saves_at_the_end_of_the_step(model, expected, tmp_path, step, place, capsys):
    before = signal.getsignal(signal.SIGTERM)
    training = Training(model)
    with pytest.raises(SystemExit) as ended:
        training.reset()
        training.fit(Terminate(step), Checkpoint(tmp_path, every_seconds=None, verbose=0))
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert places(tmp_path)[0] == place
    said = f"training ends in epoch {place[0] + 1} after step {place[1]}; checkpoint saved"
    assert said in capsys.readouterr().out
    assert training.killed(tmp_path).differences(expected) == []


def test_sigterm_at_the_end_of_an_epoch_and_in_the_last_one(model, expected, tmp_path, capsys):
    """Also after the last: what follows `fit` would be cut short when the machine is taken away."""

    class AtEpochEnd(Terminate):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == self._step:
                self.kill()

    training = Training(model)
    for epoch in (1, EPOCHS - 1):
        folder = tmp_path / str(epoch)
        training.reset()
        terminate = AtEpochEnd(epoch)
        terminate.on_train_batch_end = terminate.on_test_batch_end = lambda *_, **__: None
        checkpoint = Checkpoint(folder, verbose=0)
        ended = []
        terminate.on_train_end = lambda logs=None, epoch=epoch, ended=ended: ended.append(epoch)
        with pytest.raises(SystemExit) as exited:
            training.fit(terminate, checkpoint)
        assert exited.value.code == 143
        assert places(folder)[0] == (epoch + 1, 0)
        is_last = epoch == EPOCHS - 1
        assert ended == [epoch] * is_last
        said = "SIGTERM: training had ended; checkpoint saved" in capsys.readouterr().out
        assert said == is_last
        assert training.resumed(folder).differences(expected) == []


def test_without_preemption_a_signal_is_left_alone(model, tmp_path):
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    try:
        Training(model, epochs=1).fit(Terminate(2), Checkpoint(tmp_path, preemption=False))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [1]


def test_a_training_that_is_over(model, expected, tmp_path, capsys):
    training = Training(model)
    training.killed(tmp_path, 4)
    capsys.readouterr()
    seen = Kill(1)
    history = model.fit(*training.data, callbacks=[seen, Checkpoint(tmp_path)], **training.options)
    assert seen._seen == 0
    assert capsys.readouterr().out == "Training ended after epoch 3: nothing is left to train\n"
    assert history.history == {k: v for k, v in expected.history.items() if k != "epoch"}
    assert model._initial_epoch is None
    whole = training.uninterrupted(epochs=EPOCHS + 2)
    assert training.resumed(tmp_path, epochs=EPOCHS + 2).differences(whole) == []


def test_a_training_that_a_callback_stopped_stays_stopped(model, tmp_path, capsys):
    def stopping():
        return [
            keras.callbacks.EarlyStopping(
                "loss", mode="max", min_delta=99, patience=1, restore_best_weights=True
            )
        ]

    training = Training(model, make_callbacks=stopping)
    expected = training.uninterrupted()
    assert len(expected.history["loss"]) == 2
    assert training.killed(tmp_path, STEPS + 2).differences(expected) == []
    assert training.resumed(tmp_path).differences(expected) == []
    Training(model, make_callbacks=stopping).fit(Checkpoint(tmp_path))
    assert "Training was stopped after epoch 2: nothing is left" in capsys.readouterr().out


def test_a_signal_in_the_validation_of_the_epoch_in_which_a_callback_stops(model, tmp_path):
    """It stopped amid the epoch: no step of it may be trained again."""

    class StopInStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                self.model.stop_training = True

    training = Training(model, make_callbacks=lambda: [StopInStep()])
    expected = training.uninterrupted()
    found = training.killed(tmp_path, VALIDATION, kill=Terminate, every_steps=None)
    assert found.differences(expected) == []


def test_signals_in_two_validations_of_one_epoch(model, expected, tmp_path):
    """The second process trains no step, whose logs it could save."""
    training = Training(model)
    for _ in range(2):
        with pytest.raises(SystemExit):
            training.reset()
            training.fit(Terminate(VALIDATION), Checkpoint(tmp_path, every_seconds=None, verbose=0))
    assert places(tmp_path)[0] == (0, STEPS)
    assert training.resumed(tmp_path).differences(expected) == []


class CountsValidations(keras.Model):
    """A test step that changes a variable, as that of a stateful layer."""

    def build(self, shape):
        self.dense = keras.layers.Dense(3, activation="softmax")
        self.dense.build(shape)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        return self.dense(x)

    def test_step(self, data):
        self.count.assign_add(1.0)
        return super().test_step(data)


def test_a_validation_that_a_signal_ends_leaves_no_trace(tmp_path):
    model = CountsValidations()
    model.compile(momentum(), "sparse_categorical_crossentropy")
    model.build((None, X.shape[1]))
    training = Training(model, epochs=2)
    expected = training.uninterrupted()
    found = training.killed(tmp_path, VALIDATION, kill=Terminate, every_steps=None)
    assert found.differences(expected) == []


class Poison(keras.callbacks.Callback):
    """Makes a weight NaN in a step, as a gradient would."""

    def __init__(self, step):
        super().__init__()
        self.step, self.seen = step, 0

    def get_state(self):
        return {}

    def set_state(self, state):
        pass

    def on_train_batch_begin(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.step:
            self.model.get_layer(index=1).bias.assign(np.full(16, np.nan))


def finite(folder):
    kept = checkpoint_files(folder)
    return kept and all(
        np.isfinite(array).all()
        for checkpoint in kept
        for array in checkpoint.read()[0].values()
        if array.dtype.kind == "f"
    )


@pytest.mark.parametrize("every_steps", [1, STEPS])
def test_weights_that_are_nan_stop_the_training_and_are_not_saved(model, tmp_path, every_steps):
    training = Training(model)
    training.reset()
    checkpoint = Checkpoint(tmp_path, every_steps=every_steps, verbose=0)
    with pytest.raises(NonFiniteWeightsError, match="kernel is not finite after step 2 of epoch 2"):
        training.fit(Poison(STEPS + 2), checkpoint)
    assert finite(tmp_path)
    assert places(tmp_path)[0] == ((1, 1) if every_steps == 1 else (1, 0))


def test_a_value_that_is_infinite_from_the_start_is_saved(tmp_path):
    class Masked(keras.layers.Layer):
        def build(self, shape):
            self.mask = self.add_weight(
                shape=(3,), initializer=lambda *_, **__: [0, 0, -np.inf], trainable=False
            )

        def call(self, x):
            return keras.ops.softmax(x + self.mask)

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3), Masked()])
    model.compile("sgd", "mse")
    training = Training(model, epochs=1, validation_data=None)
    training.data = (training.data[0], np.eye(3)[training.data[1]])
    training.fit(Checkpoint(tmp_path, verbose=0))
    assert places(tmp_path) == [(1, 0)]


def test_a_full_disk_does_not_end_the_training(model, expected, tmp_path, monkeypatch, capsys):
    write = CheckpointStore._write

    def full(store, epoch, batch, arrays, state):
        if (epoch, batch) > (0, 3):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(store, epoch, batch, arrays, state)

    monkeypatch.setattr(CheckpointStore, "_write", full)
    training = Training(model)
    training.reset()
    found = training.fit(Checkpoint(tmp_path, every_steps=1, verbose=0))
    assert len(found.history["loss"]) == EPOCHS
    assert places(tmp_path) == [(0, 3), (0, 2), (0, 1)]
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("Checkpoint not saved, training continues: No space left on device") == 15
    monkeypatch.setattr(CheckpointStore, "_write", write)
    assert training.resumed(tmp_path).differences(expected) == []


def test_a_signal_while_the_disk_is_full_says_that_nothing_is_saved(
    model, tmp_path, monkeypatch, capsys
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "_write", full)
    training = Training(model)
    training.reset()
    with pytest.raises(SystemExit) as ended:
        training.fit(Terminate(2), Checkpoint(tmp_path, every_seconds=None, verbose=0))
    assert ended.value.code == 143
    assert places(tmp_path) == []
    *_, last = capsys.readouterr().out.splitlines()
    reason = "checkpoint not saved: No space left on device"
    assert last == f"SIGTERM: training ends in epoch 1 after step 2; {reason}"


def test_a_fit_that_failed_lets_go_of_the_folder_and_the_signals(model, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KilledError):
        Training(model).fit(Kill(2), Checkpoint(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before
    CheckpointStore(tmp_path).close()
