"""A trial that Hyperband promotes ends as one `fit` of all its epochs does."""

import dataclasses

import kdist
import keras
import keras_tuner
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.workers import SaveTimes
from kdist.study.search_checkpoints import checkpoint_folder
from kdist.study.search_models import UserHyperModel
from kdist.study.search_oracles import make_oracle
from kdist.study.search_tuner import ReplicaTuner
from kdist.training.config import TrainConfig

X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
BATCH = 16
STEPS = 3  # of an epoch


def build(hp):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(hp.Int("units", 4, 12), "relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=True)
    return model


@dataclasses.dataclass
class Trained:
    """What a training ended with."""

    history: dict
    state: list
    best: list


class Note(keras.callbacks.Callback):
    """Notes weights after every epoch, and everything before the averages replace them."""

    def __init__(self, into=None, name="", *, stop_after=None):
        super().__init__()
        self.into, self.name, self.stop_after = into, name, stop_after
        self.weights, self.steps = [], 0

    def get_state(self):
        return {}

    def set_state(self, state):
        pass

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append(self.model.get_weights())
        self.state = [v.numpy() for v in (*self.model.variables, *self.model.optimizer.variables)]
        self.model.stop_training = epoch + 1 == self.stop_after
        if self.into is not None:
            self.into.setdefault(self.name, []).append(epoch)
            self.into |= {(self.name, "state"): self.state, (self.name, "steps"): self.steps}


def uninterrupted(strategy, values, *, direction, epochs, seed=0):
    """The oracle: one `fit`, without a tuner, checkpoints or saved weights."""
    keras.utils.set_random_seed(seed)
    hp = keras_tuner.HyperParameters()
    hp.values = dict(values)
    model = strategy.build(lambda: build(hp))
    note = Note()
    history = model.fit(
        X, Y, batch_size=BATCH, epochs=epochs, validation_data=(X, Y), verbose=0, callbacks=[note]
    ).history
    pick = np.argmin if direction == "min" else np.argmax
    return Trained(history, note.state, note.weights[pick(history["val_loss"])])


@pytest.fixture(scope="module")
def one():
    return kdist.MirroredStrategy(replicas=1)


@pytest.fixture
def searched(one, tmp_path):
    """Runs a search of the brackets' first trials; returns the tuner and what its trials noted."""

    def run(*, direction="min", executions=1, trials=7, stop_after=None, before=None):
        notes = {}

        def callbacks(name, execution, values):
            if before is not None and "tuner/trial_id" in values:
                before(tmp_path / "t" / f"trial_{values['tuner/trial_id']}")
            return [Note(notes, name, stop_after=stop_after)]

        tuner = ReplicaTuner(
            make_oracle(
                "hyperband",
                objective=keras_tuner.Objective("val_loss", direction),
                max_trials=trials,
                max_epochs=4 if trials == 7 else 2,
                factor=2,
            ),
            UserHyperModel(build, ((X, Y), (X, Y)), TrainConfig(batch_size=BATCH), one),
            strategy=one,
            make_callbacks=callbacks,
            executions_per_trial=executions,
            directory=str(tmp_path),
            project_name="t",
        )
        tuner.search(verbose=0)
        assert [trial.message for trial in tuner.oracle.trials.values()] == [None] * trials
        return tuner, notes

    return run


def check_equal(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def check_trial(tuner, notes, trial, expected):
    """Score, weights of the best epoch, and the state in the end, optimizer and seeds included."""
    scores = expected.history["val_loss"]
    assert trial.score == (min if tuner.oracle.objective.direction == "min" else max)(scores)
    assert trial.metrics.get_last_value("epochs") == len(scores)
    check_equal(tuner.load_model(trial).get_weights(), expected.best)
    check_equal(notes[trial.trial_id, "state"], expected.state)


def last_trial(tuner):
    return tuner.oracle.trials[tuner.oracle.start_order[-1]]


def test_promoted_twice(searched, one, tmp_path):
    """The largest loss is that of the first epoch, which the trial itself never trains."""
    tuner, notes = searched(direction="max")
    epochs = [notes[name] for name in tuner.oracle.start_order]
    assert epochs == [[0]] * 4 + [[1]] * 2 + [[2, 3]]
    trial = last_trial(tuner)
    values = trial.hyperparameters.values
    check_trial(tuner, notes, trial, uninterrupted(one, values, direction="max", epochs=4))
    assert list(tmp_path.rglob("checkpoints")) == []


def test_each_execution_continues_its_own(searched, one):
    tuner, notes = searched(executions=2, trials=3)
    assert [notes[name] for name in ("0", "1", "2")] == [[0, 0], [0, 0], [1, 1]]
    trial = last_trial(tuner)
    both = [
        uninterrupted(one, trial.hyperparameters.values, direction="min", epochs=2, seed=seed)
        for seed in (0, 1)
    ]
    best = [min(one.history["val_loss"]) for one in both]
    assert trial.score == np.mean(best)
    check_equal(tuner.load_model(trial).get_weights(), both[int(np.argmin(best))].best)
    check_equal(notes["2", "state"], both[1].state)


@pytest.mark.parametrize(("damaged", "steps"), [(1, 1 + STEPS), (2, 2 * STEPS)])
def test_damaged_checkpoints_of_the_trial_that_is_promoted(
    searched, one, capsys, monkeypatch, damaged, steps
):
    """The one before is taken, of the step before the last; without any the trial begins anew."""
    monkeypatch.setattr(SaveTimes, "by_steps", lambda times: True)

    def damage(parent):
        for generation in checkpoint_files(checkpoint_folder(parent, 0))[:damaged]:
            generation.path.write_bytes(b"damaged")

    tuner, notes = searched(trials=3, before=damage)
    assert notes["2", "steps"] == steps
    trial = last_trial(tuner)
    expected = uninterrupted(one, trial.hyperparameters.values, direction="min", epochs=2)
    check_trial(tuner, notes, trial, expected)
    lines = capsys.readouterr().out.splitlines()
    skipped = [line for line in lines if line.startswith("Skipped the damaged checkpoint e00")]
    anew = [line for line in lines if line.startswith("Trained from the first epoch: every check")]
    assert (len(skipped), len(anew)) == (damaged, damaged == 2)


def test_a_trial_that_was_stopped_is_not_trained_on(searched, tmp_path):
    """As one `fit` would not have been; the trial promoted from it has its checkpoints."""
    tuner, notes = searched(stop_after=1)
    trials = [tuner.oracle.trials[name] for name in tuner.oracle.start_order]
    assert [notes.get(trial.trial_id) for trial in trials] == [[0]] * 4 + [None] * 3
    by_id = {trial.trial_id: trial for trial in trials}
    for trial in trials[4:]:
        parent = by_id[trial.hyperparameters.values["tuner/trial_id"]]
        assert trial.score == parent.score
        assert trial.metrics.get_last_value("epochs") == 1
        weights = [tuner.load_model(one).get_weights() for one in (parent, trial)]
        check_equal(*weights)
