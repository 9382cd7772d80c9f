import pytest
from kdist.study import search_run as trial_tracking
from kdist.study.folder import StudyFolder
from kdist.study.search_run import trial_trackers
from kdist.study.search_settings import Search
from kdist.training.config import TrainConfig


@pytest.fixture
def asked(monkeypatch):
    """What `tracking` was asked for."""
    seen = []
    monkeypatch.setattr(
        trial_tracking, "tracking", lambda *names, **options: seen.append((names, options)) or []
    )
    return seen


def test_without_trackers_there_are_none(tmp_path):
    assert trial_trackers(Search(), StudyFolder(str(tmp_path)), replicas=1) is None


def test_each_execution_of_a_trial_is_a_run_of_the_searchs_group(tmp_path, asked):
    search = Search(
        space={"momentum": [None, 0.9], "batch_size": [64, 32]},
        executions_per_trial=2,
        config=TrainConfig(track="wandb", track_batches=5),
    )
    folder = StudyFolder(str(tmp_path / "search"))
    left = folder.trials / "trial_03" / "tracking-1" / "wandb"
    left.mkdir(parents=True)  # by a run that was killed
    make = trial_trackers(search, folder, replicas=2)
    for execution in (0, 1):
        assert make("03", execution, {"momentum": "0.9", "batch_size": 64}) == []
    assert not left.exists()
    (names, options), (_, second) = asked
    assert names == ("wandb",)
    assert (options["group"], options["run_name"]) == ("search", "search-03-0")
    assert options["folder"] == folder.trials / "trial_03" / "tracking-0"
    assert second["run_name"] == "search-03-1"
    assert options["hyperparameters"] == {"momentum": 0.9, "batch_size": 64}
    assert options["config"]["base_lr"] == pytest.approx(0.02)  # as it is trained with
    assert (options["config"]["replicas"], options["config"]["global_batch"]) == (2, 128)
    assert options["config"]["learning_rate"] == pytest.approx(0.04)
    assert options["objective"] == ("val_accuracy", "max")
    assert options["every_batches"] == 5


def test_a_users_model_shows_its_hyperparameters(tmp_path, asked):
    search = Search(
        model="m.py:build",
        objective="seconds_to_target",
        config=TrainConfig(track="csv", time_budget=60),
    )
    make = trial_trackers(search, StudyFolder(str(tmp_path / "search")), replicas=2)
    make("0", 0, {"units": 3})
    (_, options) = asked[0]
    assert options["run_name"] == "search-0"
    assert options["hyperparameters"] == {"units": 3}
    assert options["config"] == {"units": 3, "replicas": 2, "global_batch": 64}
    assert options["objective"] == ("seconds_to_target", "min")
