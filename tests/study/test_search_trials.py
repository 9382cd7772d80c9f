import csv
import dataclasses
import io
import json
import types

import keras_tuner
import pytest
from kdist.charts.tables import MISSING
from kdist.errors import UserError
from kdist.study.folder import StudyFolder
from kdist.study.search_run import tune
from kdist.study.search_scores import best_epoch, target_metrics
from kdist.study.search_settings import Search
from kdist.study.search_trials import (
    TrialResult,
    best_first,
    best_settings,
    describe,
    read_trials,
    report,
    trials_table,
)
from kdist.training.config import TrainConfig


def test_who_missed_the_target_counts_ten_times_and_the_closer_less():
    def scored(best, reached=False, budget=9):
        stop = types.SimpleNamespace(
            reached=reached, met_seconds=7.0, seconds=3.0, best={"val_accuracy": best}
        )
        return target_metrics(stop, 0.85, time_budget=budget)["seconds_to_target"]

    assert scored(0.9, reached=True) == 7
    assert 90 < scored(0.84) < scored(0.10)
    assert 30 < scored(0.84, budget=None) < 31


def test_the_best_epoch_is_that_of_the_objective():
    history = {"val_accuracy": [0.1, float("nan"), 0.7, 0.5], "loss": [4.0, 3.0, 2.0, 1.0]}
    assert best_epoch(history, keras_tuner.Objective("val_accuracy", "max")) == {
        "val_accuracy": 0.7,
        "loss": 2.0,
    }
    assert best_epoch(history, keras_tuner.Objective("loss", "min"))["val_accuracy"] == 0.5
    with pytest.raises(UserError, match="val_loss, but training reported val_accuracy, loss"):
        best_epoch(history, keras_tuner.Objective("val_loss", "min"))


def write_trial(folder, trial_id, status, values, **metrics):
    path = folder.trials / f"trial_{trial_id}"
    path.mkdir(parents=True)
    state = {
        "trial_id": trial_id,
        "status": status,
        "score": next(iter(metrics.values()), None),
        "hyperparameters": {"space": [], "values": values},
        "metrics": {
            "metrics": {
                name: {"direction": "max", "observations": [{"value": [value], "step": 0}]}
                for name, value in metrics.items()
            }
        },
    }
    (path / "trial.json").write_text(json.dumps(state))
    return path


@pytest.fixture
def searched(tmp_path):
    """A search of five trials, of which one failed and one was being trained."""
    search = Search(
        space={"base_lr": {"min": 0.001, "max": 0.1}, "momentum": [None, 0.9]},
        config=TrainConfig(epochs=2, depth=10, width=1, track="wandb"),
    )
    folder = StudyFolder(str(tmp_path))
    for number, (rate, momentum, accuracy) in enumerate(
        [(0.01, "null", 0.5), (0.02, "0.9", 0.8), (0.03, "null", 0.6)]
    ):
        values = {"base_lr": rate, "momentum": momentum}
        write_trial(
            folder,
            str(number),
            "COMPLETED",
            values,
            val_accuracy=accuracy,
            accuracy=0.9,
            seconds=2.0,
            epochs=2.0,
        )
    failed = write_trial(folder, "3", "FAILED", {"base_lr": 0.1, "momentum": "0.9"})
    (failed / "failure.txt").write_text("loss was nan after epoch 1\n\nTraceback …\n")
    write_trial(folder, "4", "RUNNING", {"base_lr": 0.05, "momentum": "0.9"})
    order = {"start_order": ["0", "1", "2", "3", "4"]}
    (folder.trials / "oracle.json").write_text(json.dumps(order))
    return search, folder


def test_trials_are_read_as_settings(searched):
    search, folder = searched
    trials = read_trials(folder, search)
    assert [trial.status for trial in trials] == [*["COMPLETED"] * 3, "FAILED", "RUNNING"]
    assert trials[1].values == {"base_lr": 0.02, "momentum": 0.9}
    assert trials[0].values["momentum"] is None
    assert trials[3].failure == "loss was nan after epoch 1"
    ranked = best_first(trials, search)
    assert [trial.trial_id for trial in ranked] == ["1", "2", "0"]


def test_the_best_settings_are_those_of_a_run(searched):
    search, folder = searched
    best = TrainConfig.from_dict(best_settings(search, read_trials(folder, search)))
    assert (best.base_lr, best.momentum, best.depth, best.epochs) == (0.02, 0.9, 10, 2)
    assert best.track is None
    assert best_settings(search, []) is None


@pytest.mark.parametrize("replicas", [None, 2])  # `None`: all devices of any machine
def test_the_best_settings_have_as_many_replicas_as_the_trial(searched, replicas):
    search, folder = searched
    search = dataclasses.replace(search, config=TrainConfig(replicas=replicas))
    assert best_settings(search, read_trials(folder, search))["replicas"] == replicas


def test_the_report_leaves_a_table_a_chart_and_the_best_settings(searched):
    search, folder = searched
    lines = []
    report(search, folder, announce=lines.append)
    text = "\n".join(lines)
    assert "Trial 3 failed: loss was nan after epoch 1" in text
    assert "Best trial: 1, val_accuracy 0.8" in text
    assert "┃ Trial ┃ val_accuracy ┃" in text
    rows = list(csv.DictReader(io.StringIO((folder.path / "trials.csv").read_text())))
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3", "4"]
    head = (folder.path / "trials.csv").read_text().splitlines()[0].split(",")
    assert len(set(head)) == len(head)
    assert (rows[1]["score"], rows[1]["accuracy"]) == ("0.8", "0.9")
    assert (rows[1]["base_lr"], rows[1]["seconds"], rows[1]["epochs"]) == ("0.02", "2.0", "2")
    assert (folder.path / "trials.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder.path / "best.json").read_text())["base_lr"] == 0.02


def test_who_reached_the_target_comes_first(tmp_path):
    budget = TrainConfig(time_budget=60)
    search = Search(objective="seconds_to_target", space={"width": [1, 2]}, config=budget)
    folder = StudyFolder(str(tmp_path))
    write_trial(folder, "0", "COMPLETED", {"width": 1}, seconds_to_target=5.0, reached=0.5)
    write_trial(folder, "1", "COMPLETED", {"width": 2}, seconds_to_target=50.0, reached=1.0)
    (folder.trials / "oracle.json").write_text(json.dumps({"start_order": ["0", "1"]}))
    ranked = best_first(read_trials(folder, search), search)
    assert [trial.trial_id for trial in ranked] == ["1", "0"]


def test_the_table_has_what_was_measured_and_tuned():
    def trial(trial_id, score, reached=1.0, **more):
        return TrialResult(
            trial_id=trial_id,
            status="FAILED" if score is None else "COMPLETED",
            score=score,
            values={"width": 2, "tuner/epochs": 3, **more},
            metrics={} if score is None else {"seconds": 12.34567, "reached": reached},
        )

    budget = TrainConfig(time_budget=60)
    search = Search(objective="seconds_to_target", space={"width": [1, 2]}, config=budget)
    trials = [trial("0", 600.0, reached=0.5), trial("1", None, xla=True), trial("2", 50.0)]
    table = trials_table(trials, search)
    assert table.columns == ["Trial", "seconds_to_target", "seconds", "width", "xla"]
    assert table.rows == [
        ["2", "50", "12.35", "2", MISSING],
        ["0", "600, missed the target", "12.35", "2", MISSING],
        ["1", "failed", MISSING, "2", "yes"],
    ]
    assert table.note.startswith("Best first, by seconds_to_target;")


def test_a_trial_is_described_in_a_line():
    values = {"a": 0.123456, "b": "x", "tuner/epochs": 9, "tuner/initial_epoch": 3}
    assert describe(values) == "a 0.1235, b x, epochs 4 to 9"


def test_hyperparameters_are_in_the_order_of_the_space_everywhere(tmp_path):
    """KerasTuner's chief sends the values of a trial in an order of their own."""
    search = Search(model="mine.py:build", output=str(tmp_path))
    folder = StudyFolder(str(tmp_path))
    for number, values in enumerate([{"b": 1, "a": 2}, {"a": 3, "extra": 0, "b": 4}]):
        path = write_trial(folder, str(number), "COMPLETED", values, val_accuracy=0.5)
        state = json.loads((path / "trial.json").read_text())
        space = [{"class_name": "Int", "config": {"name": name}} for name in ("a", "b")]
        state["hyperparameters"]["space"] = space
        (path / "trial.json").write_text(json.dumps(state))
    (folder.trials / "oracle.json").write_text(json.dumps({"start_order": ["0", "1"]}))
    trials = read_trials(folder, search)
    assert [list(trial.values) for trial in trials] == [["a", "b"], ["a", "b", "extra"]]
    assert list(best_settings(search, trials)) == ["a", "b"]


@pytest.mark.parametrize(("short", "full"), [("accuracy", "val_accuracy"), ("loss", "val_loss")])
def test_objectives_are_called_as_keras_reports_them(short, full):
    search = Search(objective=short)
    assert search.objective == full


def finished(tmp_path, statuses, ended=None, **options):
    search = Search(space={"width": [1, 2]}, output=str(tmp_path), **options)
    folder = StudyFolder(str(tmp_path))
    for number, status in enumerate(statuses):
        scores = {"val_accuracy": 0.5} if status == "COMPLETED" else {}
        write_trial(folder, str(number), status, {"width": 1}, **scores)
    names = [str(number) for number in range(len(statuses))]
    order = {"start_order": names, "end_order": ended or names}
    (folder.trials / "oracle.json").write_text(json.dumps(order))
    folder.write_about(search.about)
    if len(statuses) == search.max_trials:
        folder.write("summary.json", {"points_left": 0, "max_trials": search.max_trials})
    return search


def test_a_finished_search_is_told_without_training(tmp_path, monkeypatch):
    search = finished(tmp_path, ["FAILED", "COMPLETED", "FAILED"], max_trials=3)
    monkeypatch.setattr("kdist.study.search_run.run_trials", None)
    lines = []
    tune(search, announce=lines.append)
    assert "Best trial: 1, val_accuracy 0.5" in lines
    assert lines[-1] == (
        f"The search in {tmp_path} is finished: pass a larger --max-trials to continue, or another"
        " --output for a new one"
    )


@pytest.mark.parametrize(
    ("statuses", "options", "words"),
    [
        (["FAILED"], {"max_trials": 1}, "as its trial failed, with 'no reason"),
        (["FAILED"] * 3, {"max_trials": 3}, "as all 3 trials failed, the last with 'no reason"),
        (
            ["COMPLETED", "FAILED", "FAILED"],
            {"max_failures": 2},
            "as the last 2 trials failed, the last with",
        ),
        (  # two at once
            ["COMPLETED", "FAILED", "COMPLETED", "FAILED"],
            {"max_failures": 2, "ended": ["0", "2", "1", "3"]},
            "as the last 2 trials failed, the last with",
        ),
    ],
)
def test_a_search_that_failures_ended_is_an_error(tmp_path, monkeypatch, statuses, options, words):
    search = finished(tmp_path, statuses, **options)
    monkeypatch.setattr("kdist.study.search_run.run_trials", lambda *_, **__: None)
    with pytest.raises(UserError, match=words):
        tune(search, announce=lambda line: None)
    assert (tmp_path / "trials.csv").exists()
