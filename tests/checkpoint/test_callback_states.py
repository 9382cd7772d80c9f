"""What callbacks have noted is saved, and restored where it does not begin anew."""

import csv
import itertools
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import Checkpoint
from kdist.checkpoint.callback_states import CallbackStates
from kdist.errors import UserError
from resumed_training import STEPS, VALIDATION, Kill, KilledError, Training, X, network

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


@pytest.fixture(scope="module")
def model():
    model = network()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.8)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Losses(keras.callbacks.Callback):
    """A user's own, which begins anew as Keras's do, and notes every step of an epoch."""

    def on_train_begin(self, logs=None):
        self.sum = 0.0
        self.best = (0, np.zeros(2))

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = []

    def on_train_batch_end(self, batch, logs=None):
        self.epoch.append(logs["loss"])
        self.best = max(self.best, (batch, np.full(2, logs["loss"])), key=lambda one: one[0])

    def on_epoch_end(self, epoch, logs=None):
        self.sum += sum(self.epoch)

    def get_state(self):
        return {"sum": self.sum, "best": self.best, "epoch": list(self.epoch)}

    def set_state(self, state):
        vars(self).update(state)


def some(folder):
    return [
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_accuracy", patience=1, mode="max", min_delta=9),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ModelCheckpoint(
            folder / "best-{epoch}.weights.h5", save_weights_only=True, save_freq=4
        ),
        Losses(),
        Losses(),
    ]


def test_known_callbacks(model, tmp_path):
    folders = (tmp_path / str(number) for number in itertools.count())
    training = Training(model, make_callbacks=lambda: some(next(folders)))
    expected = training.uninterrupted()
    kills = [4, STEPS - 2, VALIDATION, 2]
    found = training.killed(tmp_path / "checkpoints", *kills)
    assert found.differences(expected) == []
    written = {number: {p.name for p in (tmp_path / str(number)).glob("*.h5")} for number in (0, 5)}
    assert written[5] <= written[0]
    assert "best-3.weights.h5" in written[5]


def test_a_longer_training_continues_from_the_weights_and_not_from_their_averages(model, tmp_path):
    swap = keras.callbacks.SwapEMAWeights
    for number, callbacks in enumerate([lambda: [swap(swap_on_epoch=True)], lambda: [swap()]]):
        training = Training(model, make_callbacks=callbacks)
        expected, short = training.uninterrupted(), training.uninterrupted(epochs=2)
        folder = tmp_path / str(number)
        assert training.killed(folder, 4, epochs=2).differences(short) == []
        assert training.resumed(folder).differences(expected) == []


class Halving(keras.callbacks.Callback):
    """Sets the rate as training begins, and lowers it with every epoch."""

    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate = 0.02

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.5 * float(self.model.optimizer.learning_rate)

    def get_state(self):
        return {}

    def set_state(self, state):
        """Has none."""


def test_what_a_callback_sets_as_training_begins_is_restored(model, tmp_path):
    training = Training(model, make_callbacks=lambda: [Halving()])
    expected = training.uninterrupted()
    for every_steps in (1, STEPS):
        folder = tmp_path / str(every_steps)
        found = training.killed(folder, STEPS + 1, STEPS, every_steps=every_steps)
        assert found.differences(expected) == []


@pytest.mark.filterwarnings("ignore:Checkpoint does not save the state of BackupAndRestore")
def test_a_backup_of_keras_from_another_time_is_not_what_is_resumed(model, tmp_path):
    """It replays the epoch on weights that are further, and begins in an epoch of its own."""
    number = itertools.count()
    training = Training(
        model,
        make_callbacks=lambda: [
            keras.callbacks.BackupAndRestore(tmp_path / f"backup-{next(number) % 2}", save_freq=5)
        ],
    )
    expected = training.uninterrupted()
    found = training.killed(tmp_path / "saved", STEPS + 3, STEPS - 1, 3, every_steps=STEPS)
    assert found.differences(expected) == []


def test_rows_of_a_csv_logger_are_there_once(model, tmp_path):
    names = ("replacing", "appending")
    paths, expected = ([tmp_path / f"{kind}-{n}.csv" for n in names] for kind in "ab")

    def make_loggers(paths):
        return [
            keras.callbacks.CSVLogger(path, append=append)
            for path, append in zip(paths, (False, True), strict=True)
        ]

    Training(model, make_callbacks=lambda: make_loggers(expected)).uninterrupted()
    training = Training(model, make_callbacks=lambda: make_loggers(paths))
    # Behind the end of the second epoch no checkpoint is due: its row is written again.
    training.killed(tmp_path / "saved", 2 * STEPS - 1, 1, STEPS + 1, every_steps=STEPS + 3)
    for path, expected_path in zip(paths, expected, strict=True):
        assert path.read_text() == expected_path.read_text()
        with open(path, newline="") as file:
            assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2"]


@pytest.mark.parametrize("left", [None, 20])
def test_the_file_of_a_csv_logger_that_is_gone_or_cut_short(model, tmp_path, left):
    """It may be removed while it is written, too."""
    path, spoiled = tmp_path / "log.csv", []

    class Spoil(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and not spoiled:
                spoiled.append(text := path.read_bytes())
                path.unlink()
                if left is not None:
                    path.write_bytes(text[:left])

    training = Training(model, make_callbacks=lambda: [keras.callbacks.CSVLogger(path), Spoil()])
    training.killed(tmp_path / "saved", STEPS + 2)
    with open(path, newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]


def test_a_csv_logger_appends_rows_with_the_columns_of_its_file(tmp_path):
    """Rows of an earlier training stay; a row that is written again, or half written, goes."""
    path = tmp_path / "log.csv"
    logger = keras.callbacks.CSVLogger(path, separator=";")
    states = CallbackStates([logger])
    path.write_text("epoch;loss;a\n0;1;2\n5;1;2\n0;3;4\n1;3;4\n2;3")
    states.restore_before_training({}, epoch=1)
    assert path.read_text() == "epoch;loss;a\n0;1;2\n5;1;2\n0;3;4\n"
    assert (logger.keys, logger.append) == (["loss", "a"], True)
    states.restore({})
    assert logger.append is False
    path.write_text("of another program\n")
    states.restore_before_training({}, epoch=1)
    assert logger.append is False
    assert path.read_text() == "of another program\n"


def test_steps_of_tensorboard_continue(model, tmp_path):
    """In a new event file, as TensorFlow's writers do."""
    training = Training(
        model,
        make_callbacks=lambda: [keras.callbacks.TensorBoard(tmp_path / "logs", update_freq=1)],
        epochs=2,
    )
    training.killed(tmp_path / "checkpoints", STEPS + 3)
    steps = [
        event.step
        for path in sorted(Path(tmp_path, "logs", "train").glob("events*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "batch_loss"
    ]
    assert steps == list(range(1, 2 * STEPS + 1))


def test_one_warning_names_those_that_are_not_saved(model, tmp_path):
    class Own(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

    class Nothing(keras.callbacks.Callback):
        pass

    class MyStopping(keras.callbacks.EarlyStopping):
        pass

    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)
    states = CallbackStates([Own(), scheduler, Nothing(), MyStopping(), Losses(), Own()])
    with pytest.warns(match="does not save the state of Own, MyStopping, Own-2: a resumed"):
        states.warn_of_unsaved()


def test_state_of_a_layer_that_keras_does_not_know_is_named(tmp_path):
    class Mean(keras.layers.Layer):
        def build(self, shape):
            self.means = [tf.Variable(tf.zeros(shape[-1:]), trainable=False)]
            self.draws = tf.random.Generator.from_seed(1)
            self.known = self.add_weight(shape=(), trainable=False)

        def call(self, x):
            return x - self.means[0]

    model = keras.Sequential([keras.Input((8,)), Mean(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.warns(
        match=r"not save Mean.means \(\S*Variable\), Mean.draws \(Generator\): a res"
    ):
        Training(model, (X, X[:, :1]), epochs=1, validation_data=None).fit(Checkpoint(tmp_path))


def test_a_state_that_cannot_be_saved_is_an_error_at_the_start(model, tmp_path):
    class Bad(Losses):
        def get_state(self):
            return {"file": object()}

    training = Training(model, make_callbacks=lambda: [Bad()])
    with pytest.raises(
        UserError, match="Bad/file is of the type object, .*: let get_state.. of the callback Bad"
    ):
        training.fit(Checkpoint(tmp_path, verbose=0))
    assert not list(tmp_path.glob("*.safetensors"))


def test_callbacks_that_were_added_begin_anew(model, tmp_path):
    training = Training(model, epochs=2)
    with pytest.raises(KilledError):
        training.fit(Kill(3), Checkpoint(tmp_path, every_steps=1, verbose=0))
    losses = Losses()
    training.fit(losses, Checkpoint(tmp_path, verbose=0))
    assert len(losses.epoch) == STEPS
