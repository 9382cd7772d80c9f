import keras
import pytest
from kdist.callbacks import SaveTrainingData, TrainingTelemetry
from kdist.errors import UserError
from kdist.tracking import tracking


def test_no_tracker_is_no_callback(tmp_path):
    assert tracking(folder=tmp_path, config={}) == []
    assert tracking("none", folder=tmp_path, config={}) == []


def test_a_table_is_a_callback_that_writes_it(tmp_path):
    folder = tmp_path / "new" / "run"
    (table,) = tracking("csv", folder=folder, config={})
    assert isinstance(table, SaveTrainingData)
    assert table.path == str(folder / "history.csv")
    assert folder.is_dir()


def test_nothing_is_written_before_training_begins(tmp_path):
    trackers = tracking(
        "wandb,tensorboard",
        folder=tmp_path / "run",
        config={},
        every_batches=2,
        profile_batches=(1, 2),
        log_model=True,
    )
    assert [type(tracker).__name__ for tracker in trackers] == [
        "WandbTracker",
        "WandbBatches",
        "TensorBoardTracker",
        "TensorBoardBatches",
        "ProfileSteps",
    ]
    assert not (tmp_path / "run").exists()


def test_a_telemetry_that_is_not_among_the_callbacks_is_an_error(tmp_path):
    """It would measure nothing."""
    telemetry = TrainingTelemetry()
    *_, tracker = tracking("tensorboard", folder=tmp_path, config={}, telemetry=telemetry)
    tracker.set_model(keras.Sequential())
    with pytest.raises(UserError, match=r"not among the callbacks of fit, .*\[telemetry, \*track"):
        tracker.on_train_begin()


def test_keras_waits_for_no_batch_that_nobody_asked_for(tmp_path):
    hooks = keras.callbacks.Callback
    for tracker in tracking("wandb,tensorboard", folder=tmp_path, config={}, log_model=True):
        for name in ("on_batch_end", "on_train_batch_end", "on_train_batch_begin"):
            assert getattr(type(tracker), name) is getattr(hooks, name)


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        ("nosuch", {}, "unknown tracker nosuch"),
        ("wandb", {"every_batches": 0}, "every_batches is 0"),
        ("csv", {"every_batches": 2}, "does nothing without wandb or tensorboard"),
        ("csv", {"telemetry": TrainingTelemetry()}, "does nothing without wandb or tensorboard"),
        ("wandb", {"profile_batches": (1, 2)}, "does nothing without tensorboard"),
        ("wandb", {"objective": ("val_loss", "least")}, 'objective has to be a name and "max"'),
        ("wandb", {"folder": "/proc/version/run"}, "cannot write the files of wandb"),
        ("csv", {"folder": "/proc/version"}, "/proc/version is not a folder"),
        ("tensorboard", {"tensorboard_folder": "/proc/version"}, "the files of tensorboard"),
    ],
)
def test_mistakes_are_told_at_once(tmp_path, names, options, words):
    with pytest.raises(UserError, match=words):
        tracking(names, **{"folder": tmp_path, "config": {}, **options})


def test_a_mode_that_wandb_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "off")
    with pytest.raises(UserError, match="WANDB_MODE has to be one of online.*received off"):
        tracking("wandb", folder=tmp_path, config={})


def test_a_file_in_the_way_of_wandbs_folder(tmp_path):
    (tmp_path / "wandb").write_text("")
    with pytest.raises(UserError, match="wandb is not a folder; choose another"):
        tracking("wandb", folder=tmp_path, config={})
