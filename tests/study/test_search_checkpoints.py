"""A search that was killed or interrupted amid a trial ends like one that was not."""

import errno
import os
import signal

import kdist
import keras
import keras_tuner
import numpy as np
import pytest
from kdist.checkpoint.state import CallbackStates
from kdist.checkpoint.store import CheckpointStore
from kdist.errors import UserError
from kdist.study import search_checkpoints
from kdist.study.search_models import UserHyperModel
from kdist.study.search_oracles import make_oracle
from kdist.study.search_tuner import ReplicaTuner
from kdist.training.config import TrainConfig

X = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
STEPS = 3  # of an epoch


class Killed(BaseException):
    """Ends a search as SIGKILL does: nothing is caught, nothing is saved any more."""


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


def build(hp):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(hp.Int("units", 4, 12)),
            keras.layers.Dropout(0.3, seed=1),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", run_eagerly=True)
    return model


def build_compiled(hp):
    model = build(hp)
    model.run_eagerly = False
    return model


def build_classifier(hp):
    model = build(hp)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def one():
    return kdist.MirroredStrategy(replicas=1)


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
        kwargs = {"executions_per_trial": executions} if executions > 1 else {}
        tuner = ReplicaTuner(
            make_oracle(
                kind,
                objective=keras_tuner.Objective("val_loss", "min"),
                max_trials=None if kind == "hyperband" else 2,
                max_epochs=3,
            ),
            UserHyperModel(build, ((X, Y), (X, Y)), TrainConfig(epochs=3, batch_size=32), one),
            strategy=one,
            make_callbacks=lambda *_: [CountAndEnd(steps, at, end)],
            directory=str(tmp_path / folder),
            project_name="t",
            **kwargs,
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


def check_equal(got, expected):
    assert got[0] == expected[0]
    for one, other in zip(got[1], expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_callback_of_a_trial_has_a_state_or_needs_none(one, tmp_path, monkeypatch):
    seen = []

    def begin(checkpoint, callbacks):
        seen.extend(callbacks)
        CallbackStates(callbacks).warn_of_unsaved()  # a warning is an error

    monkeypatch.setattr(search_checkpoints.TrialCheckpoint, "fit_begins", begin)
    tuner = ReplicaTuner(
        make_oracle(
            "hyperband",
            objective=keras_tuner.Objective("seconds_to_target", "min"),
            max_trials=1,
            max_epochs=2,
        ),
        UserHyperModel(build_classifier, ((X, Y), (X, Y)), TrainConfig(batch_size=32), one),
        strategy=one,
        target_accuracy=0.99,
        time_budget=60,
        directory=str(tmp_path),
    )
    tuner.search(verbose=0)
    assert [trial.message for trial in tuner.oracle.trials.values()] == [None]
    names = {type(callback).__name__ for callback in seen}
    assert {"SaveBestEpoch", "TunerCallback", "ReportProgress"} <= names


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def kill():
    raise Killed


@pytest.mark.parametrize("end", [sigterm, kill])
def test_a_trial_continues_amid_an_epoch(search, uninterrupted, monkeypatch, end):
    made = {"build": build_compiled} if end is kill else {}
    if end is kill:
        monkeypatch.setattr(search_checkpoints, "_EVERY_SECONDS", 1e-9)
    expected, whole = uninterrupted(**made)
    assert whole == 2 * 3 * STEPS
    nothing, before = search("ended", at=14, end=end, **made)
    assert nothing is None
    got, after = search("ended", **made)
    # Of the step that was killed nothing was saved; after a signal it was the last.
    assert before + after == whole + (end is kill)
    check_equal(got, expected)


def test_an_execution_that_has_ended_is_not_trained_again(search, uninterrupted):
    expected, whole = uninterrupted(executions=2)
    _, before = search("ended", executions=2, at=14, end=sigterm)
    got, after = search("ended", executions=2)
    assert before + after == whole
    check_equal(got, expected)


@pytest.mark.parametrize(("step", "end"), [(1, kill), (4, sigterm)])
def test_a_trial_that_hyperband_promoted_continues(search, uninterrupted, step, end):
    """Killed before it was saved, it begins where the other ended; else it continues itself."""
    expected, whole = uninterrupted(kind="hyperband")
    _, before = search("ended", kind="hyperband", at=3 * STEPS + step, end=end)
    got, after = search("ended", kind="hyperband")
    assert before + after == whole + (end is kill)
    check_equal(got, expected)


def test_a_signal_in_the_last_step_of_a_trial(search, uninterrupted):
    """The trial is saved as it ended, and the next one does not begin."""
    expected, whole = uninterrupted()
    _, before = search("ended", at=3 * STEPS, end=sigterm)
    assert before == 3 * STEPS
    got, after = search("ended")
    assert before + after == whole
    check_equal(got, expected)


def test_a_trial_whose_checkpoints_are_damaged_begins_anew(search, uninterrupted, tmp_path):
    expected, whole = uninterrupted()
    _, before = search("ended", at=14, end=sigterm)
    saved = [*(tmp_path / "ended").rglob("checkpoints/*/e*")]
    assert saved
    for path in saved:
        path.write_bytes(b"damaged")
    got, after = search("ended")
    assert after == 3 * STEPS  # the second trial from its beginning
    check_equal(got, expected)


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
    check_equal(got, expected)


def test_a_full_disk_does_not_take_the_checkpoints_of_a_trial(
    search, uninterrupted, tmp_path, monkeypatch
):
    expected, whole = uninterrupted()
    _, before = search("ended", at=14, end=sigterm)
    with monkeypatch.context() as full:
        full.setattr(CheckpointStore, "_try_rename", lambda _: full_disk())
        with pytest.raises(UserError, match="cannot write some file, as the disk is full"):
            search("ended")
    got, after = search("ended")
    assert before + after == whole
    check_equal(got, expected)
