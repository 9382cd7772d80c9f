"""Runs of `kdist train` that end before their time and are resumed, on a small network.

All in one process but one real `kdist train`, which is killed.
"""

import csv
import json
import signal
from contextlib import closing
from pathlib import Path

import keras
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.checkpoint_folder import CheckpointStore
from kdist.errors import TrainingError, UserError
from kdist.training import model_and_data, resume_run
from kdist.training import run as training_run
from kdist.training.config import TrainConfig
from kdist.training.run import train
from kdist.training.run_folder import RunFolder
from kdist.training.run_record import read_run
from replicas import assert_close, assert_equal
from small_network import At, KilledError, kill, small_model
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_graph_optimizer_in_module")]

STEPS = 3
SETTINGS = {
    "dataset": "sample",
    "subset": 96,
    "depth": 10,
    "width": 1,
    "batch_size": 32,
    "replicas": 1,
    "epochs": 3,
    "momentum": 0.9,
    "ema_momentum": 0.9,
    "checkpoint_every": 1e-9,  # after every step
}
TWO_REPLICAS = {"replicas": 2, "batch_size": 16}
TIMES = {"seconds", "images_per_sec"}


def terminate():
    signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Trains the small network in a folder, and notes the lines."""
    monkeypatch.setattr(model_and_data, "make_model", small_model)

    def begin(name, *callbacks, **values):
        config = TrainConfig(**{**SETTINGS, "run_dir": str(tmp_path / name), **values})
        return train(config, callbacks=callbacks, announce=begin.lines.append, verbose=0)

    def resume(name, *callbacks, **changes):
        begin.lines.clear()
        return resume_run(
            tmp_path / name, changes, callbacks=callbacks, announce=begin.lines.append, verbose=0
        )

    def killed(name, *callbacks, **values):
        with pytest.raises(KilledError), monkeypatch.context() as patch:
            patch.setattr(RunFolder, "discard", lambda _: None)  # no process, no cleaning up
            begin(name, *callbacks, **values)
        return tmp_path / name

    begin.lines, begin.resume, begin.killed = [], resume, killed
    return begin


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Results of runs by their settings."""
    results = {}

    def run(**values):
        key = json.dumps(values)
        if key not in results:
            folder = tmp_path_factory.mktemp("whole") / "run"
            config = TrainConfig(**{**SETTINGS, **values, "run_dir": str(folder)})
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(model_and_data, "make_model", small_model)
                results[key] = train(config, announce=lambda _: None, verbose=0)
        return results[key]

    return run


def rows_of(folder):
    return list(csv.DictReader(Path(folder, "history.csv").read_text().splitlines()))


def table(result):
    """The rows of `history.csv`, without times."""
    rows = rows_of(result.run_dir)
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def weights(result):
    model = keras.models.load_model(f"{result.run_dir}/model.keras")
    return [*model.get_weights(), *(np.asarray(v) for v in model.optimizer.variables)]


def assert_same(found, expected):
    assert table(found) == table(expected)
    assert_equal(weights(found), weights(expected))
    assert found.epochs == expected.epochs
    assert found.val_accuracy == expected.val_accuracy


def list_user_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_amid_an_epoch_in_its_validation_and_behind_a_torn_line(run, uninterrupted):
    expected = uninterrupted()
    folder = run.killed("run", At(2, 2, kill))
    assert read_run(folder, unfinished=True).status == "unfinished"
    with pytest.raises(KilledError):
        run.resume("run", At(2, 0, kill))
    with pytest.raises(KilledError):
        run.resume("run", At(3, 2, kill))
    with (folder / "history.csv").open("a") as file:
        file.write("3,1.5,12")
    found = run.resume("run")
    assert_same(found, expected)
    seconds = [float(row["seconds"]) for row in rows_of(folder)]
    assert seconds == sorted(seconds)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["epochs"], summary["interrupted"]) == (3, False)
    assert summary["seconds"] >= seconds[-1]


def test_trackers_continue(run, tmp_path):
    folder = run.killed("run", At(2, 2, kill), track="tensorboard", track_batches=1)
    run.resume("run")
    for part, tag, expected in (
        ("train", "epoch_loss", [1, 2, 3]),
        ("batches", "batch_loss", list(range(1, 3 * STEPS + 1))),
    ):
        files = sorted((folder / "tensorboard" / part).glob("events.out.tfevents.*"))
        read = [EventAccumulator(str(file)).Reload() for file in files]
        steps = [event.step for events in read for event in events.Tensors(tag)]
        assert (len(files), steps) == (2, expected)


def test_killed_before_anything_was_saved(run, uninterrupted):
    folder = run.killed("run", At(1, 1, kill), checkpoint_every=1e6)
    assert checkpoint_files(folder / "checkpoints") == []
    found = run.resume("run", replicas=2, checkpoint_every=50)
    assert json.loads((folder / "plan.json").read_text())["replicas"] == 1
    assert_same_but_for_rounding(found, uninterrupted())


def assert_same_but_for_rounding(found, expected):
    assert found.epochs == expected.epochs
    assert_close(weights(found), weights(expected), rtol=0, atol=1e-6)


def test_other_replicas_keep_batch_and_rate(run, uninterrupted):
    folder = run.killed("run", At(1, 2, kill), **TWO_REPLICAS)
    with pytest.raises(KilledError):
        run.resume("run", At(2, 2, kill), replicas=3)
    assert any("32 (at most 11 per replica)" in line for line in run.lines)
    found = run.resume("run", replicas=1)
    expected = uninterrupted(**TWO_REPLICAS)
    assert_same_but_for_rounding(found, expected)
    rows = table(found)
    assert [row["replicas"] for row in rows] == ["3", "1", "1"]
    assert {row["global_batch"] for row in rows} == {"32"}
    assert {row["learning_rate"] for row in rows} == {table(expected)[0]["learning_rate"]}
    assert json.loads((folder / "config.json").read_text())["replicas"] == 1


def test_with_shards_other_replicas_give_the_same_bits(run):
    """Also of the checkpoints that are written on the way."""
    folder = run.killed("run", At(1, 2, kill), **TWO_REPLICAS, shards=4)
    with pytest.raises(KilledError):
        run.resume("run", At(2, 2, kill), replicas=4)
    found, expected = run.resume("run", replicas=1), run("whole", **TWO_REPLICAS, shards=4)
    rows, others = table(found), table(expected)
    assert [row.pop("replicas") for row in rows] == ["4", "1", "1"]
    assert [row | {"replicas": "2"} for row in rows] == others
    assert_equal(weights(found), weights(expected))
    with pytest.raises(UserError, match="shards=4 for 3 replicas"):
        run.resume("run", replicas=3, epochs=4)
    assert json.loads((folder / "config.json").read_text())["shards"] == 4


@pytest.mark.parametrize("name", ["killed", "finished"])
def test_more_epochs(name, run, uninterrupted):
    if name == "killed":
        folder = run.killed("run", At(2, 1, kill), epochs=2)
    else:
        folder = Path(run("run", epochs=2).run_dir)
        before = list_user_files(folder)
        assert run.resume("run") is None
        assert run.lines == [
            f"{folder} is finished after 2 epochs: nothing is left to train; --epochs with a larger"
            " number trains it further"
        ]
        assert list_user_files(folder) == before
    found = run.resume("run", epochs=3)
    assert_same(found, uninterrupted())
    assert json.loads((folder / "config.json").read_text())["epochs"] == 3
    assert found.epochs == json.loads((folder / "summary.json").read_text())["epochs"] == 3


def test_more_epochs_stretch_a_schedule_that_ends_with_the_run(run):
    cosine = {"schedule": "cosine", "warmup_epochs": 0.5}
    run("run", epochs=2, **cosine)
    found = run.resume("run", epochs=4)
    rates = [float(row["learning_rate"]) for row in table(found)]
    longer = [float(row["learning_rate"]) for row in table(run("longer", epochs=4, **cosine))]
    assert rates[1] == 0
    assert rates[2:] == longer[2:]


def test_a_run_that_stopped_early_says_so(run, uninterrupted):
    stopping = {"target_accuracy": 0.001, "patience": 2}
    folder = run.killed("run", At(2, 2, kill), **stopping)
    found = run.resume("run")
    assert (found.epochs, found.reached_target) == (2, True)
    assert_same(found, uninterrupted(**stopping))
    assert run.resume("run", epochs=9) is None
    assert run.lines == [
        f"{folder} stopped after epoch 2, as its target was reached: nothing is left to train"
    ]


@pytest.mark.parametrize("lost", ["model", "summary"])
@pytest.mark.parametrize("epochs", [None, 4])
def test_killed_before_the_model_or_the_result(run, uninterrupted, monkeypatch, epochs, lost):
    """Also where there is the model of fewer epochs."""

    class Folder(RunFolder):
        def write(self, path, save):
            if path.name.startswith(lost):
                kill()
            super().write(path, save)

        def discard(self):
            pass

    changes = {} if epochs is None else {"epochs": epochs}
    if epochs is not None:
        run("run")
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "RunFolder", Folder)
        with pytest.raises(KilledError):
            run("run") if epochs is None else run.resume("run", **changes)
    found = run.resume("run")
    assert found is not None
    assert_same(found, uninterrupted(**changes))
    assert run.resume("run") is None


def test_sigterm_saves_and_the_run_continues(run, uninterrupted, tmp_path, capsys):
    result = run("run", At(2, 2, terminate), checkpoint_every=1e6)
    folder = tmp_path / "run"
    assert (result.interrupted, result.signal) == (True, signal.SIGTERM)
    assert (
        "SIGTERM: training ends in epoch 2 after step 2; checkpoint saved"
        in capsys.readouterr().out
    )
    assert run.lines[-1] == (
        f"Interrupted by SIGTERM: the run is saved in {folder}; kdist train --resume {folder}"
        " continues the run"
    )
    assert read_run(folder).status == "interrupted"
    assert (folder / "model.keras").exists()
    with pytest.raises(KilledError):
        run.resume("run", At(3, 1, kill))
    assert not (folder / "summary.json").exists()
    assert_same(run.resume("run"), uninterrupted())


def test_a_signal_of_a_batch_system(run, tmp_path):
    result = run(
        "run",
        At(1, 2, lambda: signal.raise_signal(signal.SIGUSR1)),
        preemption_signal="SIGUSR1",
    )
    assert result.signal == signal.SIGUSR1
    assert (checkpoint_files(tmp_path / "run" / "checkpoints")[0].batch) == 2


REFUSED = [
    ({"depth": 16}, "was trained with depth=10, received depth=16"),
    ({"width": 2, "subset": 64}, "was trained with subset=96, received subset=64"),
    (
        {"dataset": "fashion_mnist"},
        "was trained with dataset=sample, received dataset=fashion_mnist",
    ),
    ({"run_dir": "elsewhere"}, "received run_dir=elsewhere"),
    ({"track": "wandb"}, "received track=wandb: leave out --track to resume the run"),
    (
        {"epochs": 2},
        "with epochs=3, received 2; a resumed run can have more epochs, not fewer",
    ),
    ({"batch_size": 16, "replicas": 2}, "was trained with batch_size=32"),
    ({"depth": 12}, "depth has to be 6n"),
]


def test_what_cannot_be_resumed_is_said_and_nothing_touched(run, tmp_path, monkeypatch):
    folder = run.killed("run", At(2, 2, kill))
    before = list_user_files(folder)
    for changes, words in REFUSED:
        with pytest.raises(UserError, match=words):
            run.resume("run", **changes)
    with pytest.raises(UserError, match="cannot resume .*: not a run folder: it has none of"):
        run.resume("no")
    with pytest.raises(UserError, match="cannot resume .*: File name too long$"):
        run.resume("x" * 300)
    assert not (tmp_path / "no").exists()
    with closing(CheckpointStore(folder / "checkpoints")):
        held = list_user_files(folder)
        with pytest.raises(UserError, match=r"is in use by process \d+ on "):
            run.resume("run")
        assert list_user_files(folder) == held

    def load_other_images(config, **options):
        data = load_data(config, **options)
        data.train_images[0, 0, 0] += 1
        return data

    load_data = training_run.load_data
    monkeypatch.setattr(training_run, "load_data", load_other_images)
    with pytest.raises(UserError, match="data.description is .*96 images with SHA-256"):
        run.resume("run")
    assert {**list_user_files(folder), folder / "checkpoints/.lock": b""} == {
        **before,
        folder / "checkpoints/.lock": b"",
    }


def test_a_run_without_checkpoints(run):
    folder = run.killed("run", At(2, 2, kill), checkpoint_every=None)
    with pytest.raises(UserError, match="was trained without checkpoints, so it cannot be resumed"):
        run.resume("run", checkpoint_every=9)
    assert not (folder / "checkpoints").exists()


def test_a_run_that_fails_before_anything_is_saved_leaves_nothing(run, tmp_path):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run("run", At(1, 1, fail), checkpoint_every=1e6)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_finite_are_an_error_in_a_line(run, tmp_path):
    class Poison(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.layers[-1].bias.assign(np.full(10, np.nan))

        def get_state(self):
            return {}

        set_state = get_state

    with pytest.raises(TrainingError, match="bias is not finite after step 3 of epoch 1"):
        run("run", Poison(), epochs=1)
    assert (tmp_path / "run" / "config.json").exists()
