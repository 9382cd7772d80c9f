"""Oracles: the trials that they make, and whose checkpoints are kept."""

import random
from pathlib import Path

import keras_tuner
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kdist._upstream.keras_tuner import BracketRound, trial_file
from kdist.study.search_oracles import make_oracle, promotable, total_trials

LOSSES = {"a": 0.1, "b": 0.2, "c": 0.3}


@pytest.mark.parametrize(
    ("trials", "promoted", "failed", "expected"),
    [
        ("a", "", "", "a"),
        ("ac", "", "", "ac"),
        ("abc", "", "", "ab"),  # two of four are promoted
        ("abc", "a", "", "b"),
        ("abc", "", "x", "a"),  # one has failed, so that only one is promoted
        ("abc", "", "xy", ""),
        ("abc", "ab", "", ""),
    ],
)
def test_trials_that_may_still_be_promoted(trials, promoted, failed, expected):
    rounds = [BracketRound(4, [*trials, *failed], [*promoted]), BracketRound(2, [], [])]
    assert promotable(rounds, losses=LOSSES, failed=failed) == {*expected}


class Search:
    """Hyperband as a search drives it, without a training; it checks what is on the disk."""

    def __init__(self, folder, *, seed, factor, direction):
        self.random = random.Random(seed)
        self.oracle = make_oracle(
            "hyperband",
            objective=keras_tuner.Objective("score", direction),
            max_trials=None,
            max_epochs=factor**2,
            factor=factor,
            seed=seed,
        )
        self.oracle.verbose = 0
        self.oracle._set_project_dir(str(folder), "project")
        space = keras_tuner.HyperParameters()
        space.Float("x", 0.0, 1.0)
        self.oracle.update_space(space)
        self.running = {}
        self.promoted = 0

    def folder(self, trial_id):
        return trial_file(self.oracle, trial_id).parent / "checkpoints"

    def start(self, worker):
        trial = self.oracle.create_trial(worker)
        if trial.status == "RUNNING":
            parent = trial.hyperparameters.values.get("tuner/trial_id")
            if parent is not None:
                self.promoted += 1
                assert self.folder(parent).exists()
            self.folder(trial.trial_id).mkdir()
            self.running[worker] = trial
        return trial.status

    def end(self, worker):
        trial = self.running.pop(worker)
        parent = trial.hyperparameters.values.get("tuner/trial_id")
        assert self.folder(trial.trial_id).exists()
        assert parent is None or self.folder(parent).exists()
        trial.status = self.random.choice(["COMPLETED"] * 5 + ["FAILED"])
        if trial.status == "COMPLETED":
            self.oracle.update_trial(trial.trial_id, {"score": self.random.randrange(9)})
        self.oracle.end_trial(trial)


@hypothesis_settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(1, 1000),
    factor=st.sampled_from([2, 3]),
    workers=st.integers(1, 3),
    direction=st.sampled_from(["min", "max"]),
)
def test_checkpoints_are_there_for_as_long_as_they_are_needed(
    tmp_path_factory, seed, factor, workers, direction
):
    folder = tmp_path_factory.mktemp("search")
    search = Search(folder, seed=seed, factor=factor, direction=direction)
    idle = [f"tuner{number}" for number in range(workers)]
    while idle or search.running:
        worker = search.random.choice([*idle, *search.running])
        if worker in search.running:
            search.end(worker)
            idle.append(worker)
        elif search.start(worker) in ("RUNNING", "STOPPED"):
            idle.remove(worker)
    assume(search.promoted)  # all trials of a round may have failed
    assert [*Path(folder).rglob("checkpoints")] == []


@pytest.mark.parametrize(
    ("kind", "max_trials", "total"),
    [("random", 7, 7), ("hyperband", None, None), ("hyperband", 5, 5)],
)
def test_the_total_is_the_number_of_trials_that_the_oracle_makes(kind, max_trials, total, tmp_path):
    """Counted by asking for trials, each of which ends at once."""
    objective = keras_tuner.Objective("val_loss", "min")
    oracle = make_oracle(kind, objective=objective, max_trials=max_trials, max_epochs=9)
    oracle._set_project_dir(str(tmp_path), "search")
    hp = keras_tuner.HyperParameters()
    hp.Float("x", 0.0, 1.0)
    oracle.update_space(hp)
    made = 0
    while (trial := oracle.create_trial("tuner")).status == "RUNNING":
        made += 1
        oracle.update_trial(trial.trial_id, {"val_loss": float(made)})
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
    assert total_trials(oracle) == made
    assert total in (None, made)


@pytest.mark.parametrize(("least", "epochs"), [(1, {1, 3, 9}), (2, {3, 9}), (9, {9})])
def test_hyperband_grants_the_least_epochs_and_more(least, epochs):
    objective = keras_tuner.Objective("val_loss", "min")
    hyperband = make_oracle(
        "hyperband", objective=objective, max_trials=None, max_epochs=9, min_epochs=least
    )
    granted = {
        hyperband._get_epochs(bracket, turn)
        for bracket in range(hyperband._current_bracket + 1)
        for turn in range(bracket + 1)
    }
    assert granted == epochs
