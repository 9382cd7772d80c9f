import dataclasses
import json

import pytest
from kdist.errors import UserError
from kdist.study.search_results import (
    best_settings,
    make_trials_table,
    read_result,
    sort_trials,
)
from kdist.study.search_settings import Search
from kdist.study.study_folder import StudyFolder
from kdist.training.config import TrainConfig
from kdist.training.run_record import read_run
from report_folders import search_trials, write_run, write_search

TIMED = Search(
    objective="seconds_to_target",
    space={"width": [1, 2]},
    config=TrainConfig(time_budget=9, target_accuracy=0.85, patience=1),
)


def result(folder, search, accuracies, **options):
    return read_result(read_run(write_run(folder / "run", accuracies, **options)), search)


def test_a_score_is_that_of_the_best_epoch(tmp_path):
    row = result(tmp_path / "a", Search(), (0.1, 0.7, 0.5))
    assert (row["score"], row["best_val_accuracy"]) == (0.7, 0.7)
    assert (row["epochs"], row["seconds"]) == (3, 30)
    loss = result(tmp_path / "b", Search(objective="val_loss"), (0.1, 0.7, 0.5))
    assert loss["score"] == pytest.approx(1.4)  # the loss is 2.1 less the accuracy
    nan = {"val_loss": ["nan", 2.0, "inf"]}
    assert result(tmp_path / "c", Search(objective="val_loss"), (0.5,) * 3, extra=nan)["score"] == 2


def test_a_trial_that_missed_the_target_counts_ten_times_and_a_closer_one_less(tmp_path):
    reached = result(tmp_path / "a", TIMED, (0.5, 0.9))
    assert (reached["score"], reached["reached"]) == (20, True)
    close = result(tmp_path / "b", TIMED, (0.5, 0.84))
    far = result(tmp_path / "c", TIMED, (0.5, 0.1))
    assert close["reached"] is far["reached"] is False
    assert close["score"] == pytest.approx(90 * 1.01)
    assert far["score"] == pytest.approx(90 * 1.35)


def test_a_trial_without_a_score_has_failed(tmp_path):
    nan = {"val_loss": ["nan"]}
    with pytest.raises(UserError, match="no epoch has a finite val_loss"):
        result(tmp_path / "a", Search(objective="val_loss"), (0.5,), extra=nan)
    run = write_run(tmp_path / "b", (0.5,))
    summary = json.loads((run / "summary.json").read_text())
    lost = {"diverged": {"epoch": 2, "step": 4}}
    (run / "summary.json").write_text(json.dumps(summary | lost))
    with pytest.raises(UserError, match="the loss was not finite: epoch 2, step 4"):
        read_result(read_run(run), Search())


@pytest.fixture
def searched(tmp_path):
    """A search of six trials, of which one failed, and its rows."""
    write_search(tmp_path, search_trials(), objective="val_accuracy")
    search = Search(**SEARCHED)
    return search, StudyFolder(tmp_path, "trial").read_rows()


SEARCHED = {
    "space": {
        "base_lr": {"min": 0.001, "max": 0.1, "sampling": "log"},
        "batch_size": [16, 32],
        "dropout": {"min": 0.0, "max": 0.3},
    },
    "config": TrainConfig(epochs=2, depth=10, width=1, track="wandb"),
}


def test_trials_are_sorted_best_first(searched):
    search, rows = searched
    assert [row["name"] for row in sort_trials(rows, search)] == [
        *("trial-3", "trial-2", "trial-4", "trial-1", "trial-0")
    ]
    falling = dataclasses.replace(search, objective="val_loss")
    assert sort_trials(rows, falling)[0]["name"] == "trial-0"


def test_a_trial_that_reached_the_target_comes_first():
    rows = [
        {"name": name, "status": "done", "score": score, "reached": reached}
        for name, score, reached in (("a", 5.0, False), ("b", 50.0, True))
    ]
    assert [row["name"] for row in sort_trials(rows, TIMED)] == ["b", "a"]


@pytest.mark.parametrize("replicas", [None, 2])  # `None`: all devices of any machine
def test_the_best_settings_are_those_of_a_run(searched, replicas):
    search, rows = searched
    config = dataclasses.replace(search.config, replicas=replicas)
    search = dataclasses.replace(search, config=config)
    best = TrainConfig.from_dict(best_settings(rows, search))
    assert (best.base_lr, best.batch_size, best.depth, best.epochs) == (0.03, 32, 10, 2)
    assert (best.track, best.replicas) == (None, replicas)
    assert best_settings([], search) is None


def test_the_table_has_scores_and_settings(searched):
    search, rows = searched
    table = make_trials_table(rows, search)
    assert list(table.columns) == ["Trial", "val_accuracy", "Time", "Epochs", "Settings"]
    assert table.rows[0] == ["3", "0.9", "13.0 s", "3", "base_lr 0.03, batch_size 32, dropout 0.1"]
    assert table.rows[-1][:4] == ["5", "failed", "\N{EN DASH}", ""]
    missed = {**rows[0], "reached": False, "score": 600.0, "values": {"width": 1}}
    (row,) = make_trials_table([missed], TIMED).rows
    assert row[1] == "600, missed the target"
