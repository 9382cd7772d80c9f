"""A search that was interrupted ends like one that was not, a promoted trial like one `fit`."""

import dataclasses
import errno
import os
import shutil
import signal

import keras
import keras_tuner
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.save_times import SaveTimes
from kdist.checkpoint.state import CallbackStates
from kdist.checkpoint.store import CheckpointStore
from kdist.errors import UserError
from kdist.study import search_checkpoints
from kdist.study.search_checkpoints import checkpoint_folder
from kdist.study.search_models import UserHyperModel
from kdist.study.search_oracles import make_oracle
from kdist.study.search_tuner import ReplicaTuner
from kdist.training.config import TrainConfig

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
DATA = (X, Y), (X, Y)
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


def build_compiled(hp):
    model = build(hp)
    model.run_eagerly = False
    return model


def build_classifier(hp):
    model = build(hp)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    return model


def make_tuner(strategy, folder, oracle, *, build=build, **options):
    return ReplicaTuner(
        oracle,
        UserHyperModel(build, ((X, Y), (X, Y)), TrainConfig(epochs=3, batch_size=BATCH), strategy),
        strategy=strategy,
        directory=str(folder),
        project_name="t",
        **options,
    )


def check_equal(got, expected):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


class Killed(BaseException):
    """Ends a search as SIGKILL does: nothing is caught, nothing is saved any more."""


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def kill():
    raise Killed


class CountAndEnd(keras.callbacks.Callback):
    """Counts the steps of a search, and ends it at one of them."""

    def __init__(self, steps, at, end):
        super().__init__()
        self.steps, self.at, self.end = steps, at, end

    def get_state(self):
        return {}

    def set_state(self, state):
        pass

    def on_train_batch_begin(self, batch, logs=None):
        self.steps.append(batch)
        if len(self.steps) == self.at:
            self.end()


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def uninterrupted(search, known):
    """What `search` returns of one that nothing ends, run once for all tests."""

    def run(**options):
        key = repr(sorted(options.items(), key=lambda item: item[0]))
        if key not in known:
            keras.utils.set_random_seed(0)
            known[key] = search("whole", **options)
        return known[key]

    return run


@pytest.fixture
def search(one, tmp_path):
    """Runs or resumes a search in a folder; returns its trials' results and the steps it took."""

    def run(folder, *, kind="random", executions=1, at=None, end=None, build=build):
        steps = []
        objective = keras_tuner.Objective("val_loss", "min")
        trials = None if kind == "hyperband" else 2
        tuner = make_tuner(
            one,
            tmp_path / folder,
            make_oracle(kind, objective=objective, max_trials=trials, max_epochs=3),
            build=build,
            make_callbacks=lambda *_: [CountAndEnd(steps, at, end)],
            executions_per_trial=executions,
        )
        try:
            tuner.search(verbose=0)
        except (Killed, KeyboardInterrupt):
            return None, len(steps)
        failed = [one.message for one in tuner.oracle.trials.values() if one.message]
        assert failed == []
        results = [
            (trial.hyperparameters.values, trial.score, trial.best_step)
            for trial in (tuner.oracle.trials[one] for one in tuner.oracle.start_order)
        ]
        assert list((tmp_path / folder).rglob("checkpoints")) == []
        weights = tuner.get_best_models()[0].get_weights()
        return (results, weights), len(steps)

    return run


@pytest.fixture
def interrupted(search, known, tmp_path):
    """The steps of the search in `ended`, which a signal ended in its second trial."""
    if "interrupted" not in known:
        _, steps = search("interrupted", at=14, end=sigterm)
        known["interrupted"] = tmp_path / "interrupted", steps
    folder, steps = known["interrupted"]
    shutil.copytree(folder, tmp_path / "ended")
    return steps


def check_same(got, expected):
    """The same trials, and weights of the best."""
    assert got[0] == expected[0]
    check_equal(got[1], expected[1])


def test_every_callback_of_a_trial_has_a_state_or_needs_none(one, tmp_path, monkeypatch):
    seen = []

    def begin(checkpoint, callbacks):
        seen.extend(callbacks)
        CallbackStates(callbacks).warn_of_unsaved()  # a warning is an error

    monkeypatch.setattr(search_checkpoints.TrialCheckpoint, "fit_begins", begin)
    objective = keras_tuner.Objective("seconds_to_target", "min")
    tuner = make_tuner(
        one,
        tmp_path,
        make_oracle("hyperband", objective=objective, max_trials=1, max_epochs=2),
        build=build_classifier,
        target_accuracy=0.99,
        time_budget=60,
    )
    tuner.search(verbose=0)
    assert [trial.message for trial in tuner.oracle.trials.values()] == [None]
    names = {type(callback).__name__ for callback in seen}
    assert {"SaveBestEpoch", "TunerCallback", "ReportProgress"} <= names


def test_a_trial_continues_amid_an_epoch_after_a_signal(search, uninterrupted, interrupted):
    expected, whole = uninterrupted()
    assert whole == 2 * 3 * STEPS
    got, after = search("ended")
    assert interrupted + after == whole  # the step of the signal was the last
    check_same(got, expected)


def test_a_trial_continues_amid_an_epoch_after_a_kill(search, uninterrupted, monkeypatch):
    monkeypatch.setattr(search_checkpoints, "_EVERY_SECONDS", 1e-9)
    expected, whole = uninterrupted(build=build_compiled)
    nothing, before = search("ended", at=14, end=kill, build=build_compiled)
    assert nothing is None
    got, after = search("ended", build=build_compiled)
    assert before + after == whole + 1  # of the step that was killed nothing was saved
    check_same(got, expected)


def test_an_execution_that_has_ended_is_not_trained_again(search, uninterrupted):
    expected, whole = uninterrupted(executions=2)
    _, before = search("ended", executions=2, at=14, end=sigterm)
    got, after = search("ended", executions=2)
    assert before + after == whole
    check_same(got, expected)


@pytest.mark.parametrize(("step", "end"), [(1, kill), (4, sigterm)])
def test_a_trial_that_hyperband_promoted_continues(search, uninterrupted, step, end):
    """Killed before it was saved, it begins where the other ended; else it continues itself."""
    expected, whole = uninterrupted(kind="hyperband")
    _, before = search("ended", kind="hyperband", at=3 * STEPS + step, end=end)
    got, after = search("ended", kind="hyperband")
    assert before + after == whole + (end is kill)
    check_same(got, expected)


def test_a_signal_in_the_last_step_of_a_trial(search, uninterrupted):
    """The trial is saved as it ended, and the next one does not begin."""
    expected, whole = uninterrupted()
    _, before = search("ended", at=3 * STEPS, end=sigterm)
    assert before == 3 * STEPS
    got, after = search("ended")
    assert before + after == whole
    check_same(got, expected)


def test_a_trial_whose_checkpoints_are_damaged_begins_anew(
    search, uninterrupted, interrupted, tmp_path
):
    expected, _ = uninterrupted()
    saved = [*(tmp_path / "ended").rglob("checkpoints/*/e*")]
    assert saved
    for path in saved:
        path.write_bytes(b"damaged")
    got, after = search("ended")
    assert after == 3 * STEPS  # the second trial from its beginning
    check_same(got, expected)


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device", "some file")


def full_disk_of_h5py():
    raise OSError("Can't write data (error message = 'No space left on device', buf = 0x7)")


def full_quota_of_a_tracker():
    try:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
    except OSError as error:
        raise RuntimeError("cannot log") from error


@pytest.mark.parametrize("end", [full_disk, full_disk_of_h5py, full_quota_of_a_tracker])
def test_a_full_disk_ends_the_search_and_the_trial_continues(
    search, uninterrupted, tmp_path, monkeypatch, end
):
    monkeypatch.setattr(search_checkpoints, "_EVERY_SECONDS", 1e-9)
    expected, whole = uninterrupted()
    with pytest.raises(UserError, match="^cannot write .*: free some space") as raised:
        search("ended", at=14, end=end)
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "ended").rglob("failure.txt")) == []
    got, after = search("ended")
    assert after == whole - 13
    check_same(got, expected)


def test_a_full_disk_does_not_take_the_checkpoints_of_a_trial(
    search, uninterrupted, interrupted, monkeypatch
):
    expected, whole = uninterrupted()
    with monkeypatch.context() as full:
        full.setattr(CheckpointStore, "_try_rename", lambda _: full_disk())
        with pytest.raises(UserError, match="cannot write some file, as the disk is full"):
            search("ended")
    got, after = search("ended")
    assert interrupted + after == whole
    check_same(got, expected)


# Trials that Hyperband promotes


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


def one_fit(strategy, values, *, direction, epochs, seed=0):
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


@pytest.fixture
def searched(one, tmp_path):
    """Runs a search of the brackets' first trials; returns the tuner and what its trials noted."""

    def run(*, direction="min", executions=1, trials=7, stop_after=None, before=None):
        notes = {}

        def callbacks(name, execution, values):
            if before is not None and "tuner/trial_id" in values:
                before(tmp_path / "t" / f"trial_{values['tuner/trial_id']}")
            return [Note(notes, name, stop_after=stop_after)]

        oracle = make_oracle(
            "hyperband",
            objective=keras_tuner.Objective("val_loss", direction),
            max_trials=trials,
            max_epochs=4 if trials == 7 else 2,
            factor=2,
        )
        tuner = make_tuner(
            one, tmp_path, oracle, make_callbacks=callbacks, executions_per_trial=executions
        )
        tuner.search(verbose=0)
        assert [trial.message for trial in tuner.oracle.trials.values()] == [None] * trials
        return tuner, notes

    return run


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
    check_trial(tuner, notes, trial, one_fit(one, values, direction="max", epochs=4))
    assert list(tmp_path.rglob("checkpoints")) == []


def test_each_execution_continues_its_own(searched, one):
    tuner, notes = searched(executions=2, trials=3)
    assert [notes[name] for name in ("0", "1", "2")] == [[0, 0], [0, 0], [1, 1]]
    trial = last_trial(tuner)
    both = [
        one_fit(one, trial.hyperparameters.values, direction="min", epochs=2, seed=seed)
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
    expected = one_fit(one, trial.hyperparameters.values, direction="min", epochs=2)
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
