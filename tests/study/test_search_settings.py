import dataclasses
import json
import subprocess
import sys

import pytest
from kdist.errors import UserError
from kdist.study.search_run import divide_machine, tune
from kdist.study.search_settings import MAY_CHANGE, Search, refuse_tuned
from kdist.study.study_folder import StudyFolder, StudyInfo
from kdist.training.config import TrainConfig


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tuner": "grid"}, "tuner has to be one of random, bayesian, hyperband; received grid"),
        ({"objective": "speed"}, "objective has to be one of val_accuracy, val_loss, seconds_to"),
        ({"objective": "seconds_to_target"}, "needs a time budget, received none: pass --time-b"),
        ({"max_trials": 0}, "max_trials has to be from 1 to 1000000, received 0"),
        ({"factor": 1}, "factor has to be from 2 to 100, received 1"),
        ({"workers": 0}, "workers has to be from 1 to 1024, received 0"),
        ({"config": TrainConfig(validate=False)}, "received validate, which a search sets itself"),
        ({"config": TrainConfig(run_dir="x")}, "received run_dir"),
        (
            {"tuner": "hyperband", "space": {"epochs": [1, 2]}},
            "epochs, which Hyperband sets itself",
        ),
        ({"space": {"depht": [10]}}, "has depht, which cannot be tuned"),
    ],
)
def test_a_mistake_is_named(values, words):
    with pytest.raises(UserError, match=words):
        Search(**values)


def test_a_setting_that_is_tuned_is_not_given_too():
    search = Search(config=TrainConfig(optimizer="adam", batch_size=64))
    with pytest.raises(UserError, match="received optimizer, which the search space tunes"):
        refuse_tuned(search, {"optimizer", "batch_size", "epochs"})
    refuse_tuned(search, {"batch_size", "epochs"})
    refuse_tuned(Search(space={"width": [1, 2]}), {"optimizer"})


def test_bayesian_without_its_libraries_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="module sklearn of the extra"):
        Search(tuner="bayesian")


def test_a_search_is_plain_data():
    search = Search(space={"momentum": [None, 0.9]}, config=TrainConfig(epochs=3))
    assert (
        Search.from_info(StudyInfo(**json.loads(json.dumps(dataclasses.asdict(search.info)))))
        == search
    )
    assert Search().max_trials == 10
    assert Search(tuner="hyperband").max_trials is None


def test_only_what_makes_trials_incomparable_is_a_difference():
    one = Search(max_trials=4, config=TrainConfig(track="wandb")).info
    more = Search(max_trials=9, max_failures=2, workers=2, output="elsewhere").info
    assert one.find_differences(more, MAY_CHANGE) == []
    other = Search(tuner="hyperband", space={"width": [1]}, config=TrainConfig(depth=10)).info
    found = one.find_differences(other, MAY_CHANGE)
    assert "config.depth is 16 in the folder and 10 in this command" in found
    assert "tuner is random in the folder and hyperband in this command" in found
    assert any(line.startswith("space.base_lr is") for line in found)


@pytest.mark.parametrize(
    ("warmup", "space"),
    [
        (1.5, None),
        (0, {"warmup_epochs": [0, 1.5]}),
        (0, {"warmup_epochs": {"min": 0.0, "max": 1.5}}),
    ],
)
def test_hyperband_is_refused_with_a_warm_up_of_an_epoch(warmup, space):
    config = TrainConfig(epochs=9, warmup_epochs=warmup)
    Search(config=config, space=space)
    with pytest.raises(UserError, match=r"received warmup_epochs 1.5 with hyperband.*--tuner"):
        Search(tuner="hyperband", config=config, space=space)
    Search(tuner="hyperband", config=TrainConfig(epochs=9, warmup_epochs=0.9))


def opened(path, search):
    return StudyFolder(path, "trial").open(search.info, may_change=MAY_CHANGE)


def test_a_folder_holds_one_search(tmp_path):
    path, search = tmp_path / "search", Search(config=TrainConfig(epochs=3))
    with opened(path, search) as resumed:
        assert not resumed
        with pytest.raises(UserError, match=rf"{path} is in use by process \d+ on "):
            opened(path, search).__enter__()
    before = (path / "study.json").read_bytes()
    with pytest.raises(UserError, match="config.epochs is 3 in the folder and 4 in this command;"):
        opened(path, Search(config=TrainConfig(epochs=4))).__enter__()
    assert (path / "study.json").read_bytes() == before
    with opened(path, Search(max_trials=20, config=TrainConfig(epochs=3))) as resumed:
        assert resumed


def test_what_a_kill_leaves_before_the_settings_is_no_hindrance(tmp_path):
    for name in (".lock", ".123.study.json"):
        (tmp_path / name).touch()
    with opened(tmp_path, Search()) as resumed:
        assert not resumed


@pytest.mark.parametrize("name", ["file", "study.json"])
def test_a_folder_of_something_else_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="pass another --output"):
        opened(tmp_path, Search()).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_the_folders_place_is_told(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(UserError, match="cannot write .*file: File exists; pass another --output"):
        opened(path, Search()).__enter__()


def test_a_model_of_the_users_is_left_to_keras_tuner(tmp_path):
    file = tmp_path / "m.py"
    file.write_text("")
    words = "tune your own model with KerasTuner and distribution_strategy="
    with pytest.raises(UserError, match=words):
        Search(config=TrainConfig(model=f"{file}:build"))


@pytest.mark.parametrize(
    ("gpus", "workers", "replicas", "each", "shares"),
    [
        ("", None, 2, 2, [None]),
        ("", 2, None, 1, [None, None]),
        ("0,1,2,3", 2, None, 2, [("0", "1"), ("2", "3")]),
        ("0,1,2,3", 2, 1, 1, [("0",), ("1",)]),
    ],
)
def test_trials_at_once_have_equal_shares(monkeypatch, gpus, workers, replicas, each, shares):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    search = Search(workers=workers, config=TrainConfig(replicas=replicas))
    search, found = divide_machine(search)
    assert search.config.replicas == each
    assert [share.gpus for share in found] == shares


@pytest.mark.parametrize(
    ("workers", "replicas", "words"),
    [
        (2, 2, "received 2 workers with 2 replicas each, but 3 GPUs are visible: lower --workers"),
        (2, None, "2 workers cannot share 3 GPUs evenly"),
    ],
)
def test_gpus_have_to_suffice(monkeypatch, tmp_path, workers, replicas, words):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    output = tmp_path / "out"
    config = TrainConfig(replicas=replicas)
    with pytest.raises(UserError, match=words):
        tune(Search(workers=workers, output=str(output), config=config))
    assert not output.exists()


def test_a_mode_that_wandb_does_not_know_fails_no_trial(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "of")
    with pytest.raises(UserError, match="WANDB_MODE has to be one of .*; received of"):
        tune(Search(config=TrainConfig(track="wandb"), output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_mistake_is_one_line_and_exit_2_without_tensorflow(tmp_path):
    space = tmp_path / "space.toml"
    space.write_text("learning_rat = [0.1]\n")
    code = (
        "import sys\nsys.argv = ['kdist', 'tune', '--space', %r]\nfrom kdist.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    print(end.code, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code % str(space)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["2", "False"]
    assert done.stderr.startswith(
        "kdist: error: the search space has learning_rat, which cannot be"
    )
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [space]


def test_a_folder_in_the_place_of_a_file_is_an_error_in_a_line(tmp_path):
    (tmp_path / "space.json").mkdir()
    with pytest.raises(UserError, match=r"space.json is damaged \(Is a directory\)"):
        StudyFolder(str(tmp_path)).read_json("space.json")
