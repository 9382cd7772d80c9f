"""Trials of a search: the choices of the oracles, their record, and checkpoints that are kept."""

import random
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kdist.checkpoint.checkpoint_folder import CheckpointStore
from kdist.errors import UserError
from kdist.study.search_settings import Search
from kdist.study.search_trials import SearchTrials
from kdist.study.study_folder import StudyFolder
from kdist.training.config import TrainConfig

SPACE = {"base_lr": {"min": 0.001, "max": 0.1, "sampling": "log"}}


def make_search(tuner="random", *, epochs=9, seed=0, space=SPACE, **options):
    config = TrainConfig(depth=10, width=1, epochs=epochs, seed=seed)
    return Search(tuner=tuner, space=space, config=config, **options)


class Records:
    """A search without training: a score is a function of the learning rate."""

    def __init__(self, folder, search, *, failing=()):
        self.folder, self.search, self.failing = StudyFolder(folder, "trial"), search, failing
        self.folder.path.mkdir(exist_ok=True)
        self.rows = []
        self.open()

    def open(self):
        """As after a kill: from the files alone."""
        self.trials = SearchTrials(self.search, self.folder, self.rows)

    def end(self, trial, *, tell=True):
        failed = trial.error or trial.name in self.failing
        score = 1 / (1 + abs(trial.columns["values"].get("base_lr", 1) - 0.02))
        result = {"status": "failed"} if failed else {"status": "done", "score": score}
        row = trial.columns | result
        self.rows.append(row)
        if tell:
            self.trials.end_trial(trial, row)

    def run(self, number=99):
        """Run trials one after the other; returns their names, rates and epochs."""
        seen = []
        while len(seen) < number and (trial := self.trials.next_trial()) is not None:
            seen.append(describe(trial))
            self.end(trial)
        return seen


def describe(trial):
    return trial.name, trial.columns["values"]["base_lr"], trial.search.epochs, trial.parent


def test_a_trial_is_a_run_with_the_settings_of_the_search(tmp_path):
    space = {"momentum": [None, 0.9], "batch_size": [64]}
    search = make_search("hyperband", space=space)
    trial = Records(tmp_path / "tune", search).trials.next_trial()
    config = TrainConfig.from_dict(trial.config)
    assert (config.batch_size, config.base_lr, config.epochs) == (64, 0.02, 9)
    assert (config.checkpoint_every, config.save_model) == (300, False)
    place = trial.search
    assert place.epochs == 1
    assert not place.has_target
    assert place.tracked == {
        "group": "tune",
        "run_name": "tune-0000",
        "hyperparameters": trial.columns["values"],
    }
    assert trial.description == f"momentum {config.momentum}, batch_size 64, epochs 1 to 1"


def test_settings_that_do_not_go_together_fail_the_trial(tmp_path):
    search = make_search(space={"optimizer": ["sgd", "adam"], "momentum": [None, 0.9]})
    trials = SearchTrials(search, StudyFolder(tmp_path, "trial"), [])
    found = [trials.next_trial() for _ in range(4)]
    errors = {tuple(trial.columns["values"].values()): trial.error for trial in found}
    assert errors["adam", 0.9].startswith("received momentum=0.9 with optimizer=adam")
    assert [error for error in errors.values() if error] == [errors["adam", 0.9]]


@pytest.mark.parametrize("tuner", ["random", "hyperband"])
def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path, tuner):
    search = make_search(tuner, max_trials=12)
    whole = Records(tmp_path / "whole", search, failing=("trial-03",)).run()
    assert len(whole) == 12
    records = Records(tmp_path / "killed", search, failing=("trial-03",))
    found = records.run(3)
    begun = describe(records.trials.next_trial())
    records.open()  # killed within the fourth trial, which is failing
    found += records.run(4)
    assert found[3] == begun
    trial = records.trials.next_trial()
    found.append(describe(trial))
    records.end(trial, tell=False)
    records.open()  # killed after the row of the trial was written
    assert found + records.run() == whole


def test_the_same_seed_draws_the_same_trials(tmp_path):
    def rates(tuner, seed, name):
        records = Records(tmp_path / name, make_search(tuner, max_trials=4, seed=seed))
        return [rate for _, rate, *_ in records.run()]

    first = rates("random", 0, "a")
    assert first == rates("random", 0, "b") != rates("random", 1, "c")
    bayesian = rates("bayesian", 0, "d")
    assert bayesian == rates("bayesian", 0, "e")
    assert len(set(bayesian)) == 4


def test_a_search_goes_on_with_more_trials(tmp_path):
    records = Records(tmp_path, make_search(max_trials=2))
    assert len(records.run()) == 2
    records.search = make_search(max_trials=5)
    records.open()
    assert [name for name, *_ in records.run()] == ["trial-2", "trial-3", "trial-4"]


def test_a_search_stops_after_failures_in_a_row(tmp_path):
    names = [f"trial-{number}" for number in (1, 3, 4)]
    records = Records(tmp_path, make_search(max_trials=9, max_failures=2), failing=names)
    assert [name for name, *_ in records.run()] == [f"trial-{number}" for number in range(5)]
    assert records.trials.failed_too_often
    records.open()  # counts its own failures
    assert len(records.run()) == 4
    last = Records(tmp_path / "b", make_search(max_trials=1, max_failures=1), failing=["trial-0"])
    last.run()
    assert not last.trials.failed_too_often


def test_a_damaged_state_is_told(tmp_path):
    (tmp_path / "oracle.json").write_text('{"oracle": {}, "trials": [{}]}')
    with pytest.raises(UserError, match=r"oracle.json is damaged \(KeyError"):
        SearchTrials(make_search(), StudyFolder(tmp_path, "trial"), [])


def checkpoint(folder, name):
    """Save a checkpoint of a trial."""
    store = CheckpointStore(folder.trial_folder(name) / "run" / "checkpoints")
    store.commit(epoch=1, batch=2, arrays={}, state={})
    store.close()


def test_only_a_trial_with_checkpoints_is_continued(tmp_path):
    search = make_search("hyperband", epochs=3)
    records = Records(tmp_path, search)
    for _ in range(99):
        trial = records.trials.next_trial()
        if trial.search.epochs == 3:
            break
        records.end(trial)
    assert trial.parent is None
    begun = Records(tmp_path / "b", search)
    while (trial := begun.trials.next_trial()).search.epochs < 3:
        checkpoint(begun.folder, trial.name)
        begun.end(trial)
    best = max(begun.rows, key=lambda row: row["score"])
    assert (trial.parent, trial.columns["values"]) == (best["name"], best["values"])


@hypothesis_settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(1, 1000),
    factor=st.sampled_from([2, 3]),
    workers=st.integers(1, 3),
    objective=st.sampled_from(["val_accuracy", "val_loss"]),
)
def test_checkpoints_are_there_for_as_long_as_they_are_needed(
    tmp_path_factory, seed, factor, workers, objective
):
    """Hyperband, with trials that end at random, and the files that are there."""
    draw, folder = random.Random(seed), StudyFolder(tmp_path_factory.mktemp("search"), "trial")
    search = make_search(
        "hyperband",
        epochs=factor**2,
        seed=seed,
        factor=factor,
        objective=objective,
        max_failures=99,
    )
    trials, running, promoted, left = SearchTrials(search, folder, []), [], 0, True
    while left or running:
        if left and len(running) < workers and draw.random() < 0.7:
            trial = trials.next_trial()
            left = trial is not None or bool(running)
            if trial is not None:
                is_promoted = trial.search.epochs > 1 and "epochs 1 to" not in trial.description
                assert (trial.parent is not None) == is_promoted
                promoted += is_promoted
                checkpoint(folder, trial.name)
                running.append(trial)
        elif running:
            trial = running.pop(draw.randrange(len(running)))
            assert (folder.trial_folder(trial.name) / "run" / "checkpoints").exists()
            status = draw.choice(["done"] * 5 + ["failed"])
            trials.end_trial(trial, trial.columns | {"status": status, "score": draw.random()})
            left = True
    assume(promoted)  # all trials of a round may have failed
    assert [*folder.path.rglob("checkpoints")] == []


@pytest.mark.slow
def test_the_process_of_a_search_takes_no_device(tmp_path):
    """A GPU's memory is left to the trials: TensorFlow still takes the number of its threads."""
    code = f"""
from kdist.study.study_folder import StudyFolder
from kdist.study.search_settings import Search
from kdist.study.search_trials import SearchTrials
trials = SearchTrials(Search(max_trials=3), StudyFolder({str(tmp_path)!r}, "trial"), [])
for _ in range(2):
    trial = trials.next_trial()
    trials.end_trial(trial, trial.columns | {{"status": "done", "score": 0.5}})
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
print("none")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "none\n", done.stderr
