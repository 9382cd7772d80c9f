"""`kdist train` on several workers: the run of one process with as many replicas."""

import csv
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.study import Search, tune
from kdist.study.sweep_kinds import ThroughputSweep
from kdist.study.sweep_run import sweep
from kdist.training import TrainConfig, model_and_data, resume_run, train
from kdist.training.restart import record_run_for_restart, restore_after_restart
from kdist.training.run_folder import OtherWorkersFolder, RunFolder
from kdist.workers.tf_config import WorkerPlace, worker_place
from replicas import assert_close, assert_equal
from small_network import STAND_IN, small_model

pytestmark = pytest.mark.slow

SECONDS = 1800  # no test takes as long
SETTINGS = {
    "dataset": "sample",
    "subset": 100,
    "batch_size": 24,  # of two replicas, with an uneven last batch
    "val_batch_size": 50,
}


OWN_MODEL = Path(__file__).parents[2] / "examples" / "my_model.py"

# `kdist train`, of which worker 1 is killed in its second epoch, unless it was started again.
KILLED = """
import functools, os, signal, sys
import keras
from kdist.cli import main
from kdist.training import run

class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        place = os.environ["KDIST_RANK"], os.environ["KDIST_RESTART_COUNT"], self.epoch, batch
        if place == ("1", "0", 1, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    def get_state(self):
        return {}

    def set_state(self, state):
        pass

run.train = functools.partial(run.train, callbacks=[Kill()])
main()
"""


# `kdist launch --ray`, on a cluster of two machines; a machine leaves as its worker pauses.
SHRINKING_CLUSTER = """
import os, subprocess, sys, time
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
second = cluster.add_node(num_cpus=1)
paused = sys.argv[1]
process = subprocess.Popen(
    sys.argv[2:],
    env=os.environ | {"RAY_ADDRESS": cluster.address},
    stdout=subprocess.PIPE,
    text=True,
)
for line in process.stdout:
    print(line, end="", flush=True)
    if "Epoch 1/" in line and second is not None:
        while not os.path.exists(paused) and process.poll() is None:
            time.sleep(0.1)
        cluster.remove_node(second)
        second = None
code = process.wait()
cluster.shutdown()
raise SystemExit(code)
"""


def launch_command(*launched, **settings):
    """The command that launches a program, and its command, with settings of a run."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "kdist", "launch", *map(str, launched)]
    if "--workers" not in command:
        command[4:4] = ["--workers", "2"]
    return [*command, *given]


def start(*launched, **settings):
    """Launch a program, and its command, with settings of a run."""
    return subprocess.Popen(
        launch_command(*launched, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def columns(folder):
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    names = ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate", "replicas")
    return [[float(row[name]) for name in (*names, "global_batch")] for row in rows]


def sharded_settings(replicas):
    """Settings of a run in two shards, whose batches are given for each replica."""
    sizes = {"batch_size": 48 // replicas, "val_batch_size": 100 // replicas}
    own = {"epochs": 2, "shards": 2, "lr_rule": "none", "checkpoint_every": 0.001}
    return SETTINGS | sizes | own


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of a run in two shards on one worker."""
    folder = tmp_path_factory.mktemp("alone")
    program = folder / "program.py"
    program.write_text(STAND_IN + KILLED)
    settings = sharded_settings(1) | {"run_dir": folder / "run"}
    process = start("--workers", "1", program, "train", **settings)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return folder / "run"


def saved_weights(folder):
    return keras.models.load_model(folder / "model.keras").get_weights()


def assert_same_bits(folder, alone, replicas):
    """Compare a run with the run on one replica; `replicas` lists the replicas of each epoch."""
    found, expected = np.array(columns(folder)), np.array(columns(alone))
    np.testing.assert_array_equal(found[:, :5], expected[:, :5])
    assert (found[:, 5].tolist(), expected[:, 5].tolist()) == (replicas, [1, 1])
    assert_equal(saved_weights(folder), saved_weights(alone))


def test_fewer_workers_go_on_with_the_same_bits(alone, tmp_path):
    program = tmp_path / "killed.py"
    program.write_text(STAND_IN + KILLED)
    settings = sharded_settings(2) | {"run_dir": tmp_path / "run"}
    process = start("--elastic", program, "train", **settings)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "restarts with 1 worker" in errors
    assert output.count("Resumed in epoch 2") == 1, output
    assert_same_bits(tmp_path / "run", alone, [2, 1])


RAY_CASES = {
    # The worker is the parent of the program, which must not end its epoch before it is killed too.
    "killed": (
        "os.kill(os.getppid(), signal.SIGKILL); signal.pause()",
        ["--max-restarts", "1"],
        [2, 2],
    ),
    "elastic": (
        "open({paused!r}, 'w').close(); signal.pause()",
        ["--max-restarts", "1", "--elastic"],
        [2, 1],
    ),
}


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'kdist[ray]'"
)
@pytest.mark.skipif(os.cpu_count() == 1, reason="each worker of Ray needs a core")
@pytest.mark.parametrize("case", RAY_CASES)
def test_workers_on_ray_train_the_same_bits(alone, case, tmp_path):
    """One of them is killed, or its machine leaves the cluster."""
    ends, options, replicas = RAY_CASES[case]
    program = tmp_path / "program.py"
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    paused = tmp_path / "run" / "paused"  # by then, the folder has been created
    program.write_text(STAND_IN + KILLED.replace(kill, ends.format(paused=str(paused))))
    settings = sharded_settings(2) | {"run_dir": tmp_path / "run"}
    command = launch_command("--ray", *options, program, "train", **settings)
    if case == "elastic":
        command = [sys.executable, "-c", SHRINKING_CLUSTER, str(paused), *command]
    # `local` starts a cluster of this test's own.
    variables = {"RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | variables,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Resumed in epoch 2") == 1, done.stdout
    assert_same_bits(tmp_path / "run", alone, replicas)
    assert {path.name for path in tmp_path.iterdir()} == {"program.py", "run"}


def test_two_workers_give_what_two_replicas_give(tmp_path, monkeypatch):
    """Also where one of them is killed, and both are started again."""
    (tmp_path / "killed.py").write_text(STAND_IN + KILLED)
    monkeypatch.setattr(model_and_data, "make_model", small_model)
    process = start(
        *("--max-restarts", "1", tmp_path / "killed.py", "train"),
        **SETTINGS,
        epochs=2,
        checkpoint_every=0.001,
        run_dir=tmp_path / "workers",
    )
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "worker 1 was killed by SIGKILL" in errors
    assert "restart 1 of 1" in errors
    # The chief alone prints and writes.
    assert all(line.startswith("[0]") for line in output.splitlines()), output
    assert output.count("Resumed in epoch") == 1, output
    assert output.count("Epoch 2/2") == 1
    config = TrainConfig(**SETTINGS, epochs=2, replicas=2, run_dir=str(tmp_path / "replicas"))
    train(config, verbose=0, announce=lambda _: None)
    found = columns(tmp_path / "workers")
    np.testing.assert_allclose(found, columns(tmp_path / "replicas"), rtol=1e-4)
    trained, expected = (saved_weights(tmp_path / name) for name in ("workers", "replicas"))
    assert_close(trained, expected, atol=1e-5)
    summary = json.loads((tmp_path / "workers" / "summary.json").read_text())
    assert (summary["workers"], summary["replicas"], summary["epochs"]) == (2, 2, 2)
    # One process continues the run.
    further = {"epochs": 3, "replicas": 1}
    resumed = resume_run(tmp_path / "workers", further, verbose=0, announce=lambda _: None)
    assert (resumed.epochs, columns(tmp_path / "workers")[:2]) == (3, found)


def test_weights_that_are_divided_over_the_workers_are_saved_by_the_chief(tmp_path):
    """All workers take part, as the chief has only its parts."""
    options = [
        "--subset",
        "64",
        "--depth",
        "10",
        "--width",
        "1",
        "--epochs",
        "1",
        "--replicas",
        "1",
        "--shard-weights",
    ]
    process = start("-m", "kdist", "train", *options, dataset="sample", run_dir=tmp_path / "run")
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    model = keras.models.load_model(tmp_path / "run" / "model.keras")
    assert max(np.abs(weight).max() for weight in model.get_weights()) > 0
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_signal_ends_all_workers_after_the_epoch(tmp_path):
    program = ("-m", "kdist", "train", f"{OWN_MODEL}:build")
    process = start(*program, epochs=1000, run_dir=tmp_path / "run")
    assert process.stdout is not None
    for line in process.stdout:
        if "Epoch 1/1000" in line:
            break
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, errors
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["interrupted"]
    assert 1 <= summary["epochs"] < 1000
    assert len(columns(tmp_path / "run")) == summary["epochs"]
    keras.models.load_model(tmp_path / "run" / "model.keras")


def tf_config(kind, index, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", WorkerPlace()),
        ("{}", WorkerPlace()),
        (tf_config("worker", 0, worker=["a:1"]), WorkerPlace()),
        (tf_config("worker", 0, worker=["a:1", "b:1"]), WorkerPlace(2, True)),
        (tf_config("worker", 1, worker=["a:1", "b:1"]), WorkerPlace(2, False)),
        (tf_config("worker", 0, worker=["b:1"], chief=["a:1"]), WorkerPlace(2, False)),
        (tf_config("chief", 0, worker=["b:1"], chief=["a:1"]), WorkerPlace(2, True)),
    ],
)
def test_the_place_of_a_worker(text, place):
    assert worker_place({"TF_CONFIG": text}) == place


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"cluster": 3}'])
def test_an_invalid_cluster_is_left_to_the_strategy(text):
    assert worker_place({"TF_CONFIG": text}).workers > 1


def test_what_is_for_one_worker_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 1, worker=["a:1", "b:1"]))
    with pytest.raises(UserError, match="kdist sweep starts its own trainings.* TF_CONFIG has 2"):
        sweep(ThroughputSweep(train={}))
    with pytest.raises(UserError, match="kdist tune starts its own .* --workers N trains N trials"):
        tune(Search(output=str(tmp_path / "tune")))
    assert os.listdir(tmp_path) == []


def test_workers_that_are_started_again_resume_their_run(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    first = {"KDIST_LAUNCH_NOTES": str(notes), "KDIST_RESTART_COUNT": "0"}
    again = {**first, "KDIST_RESTART_COUNT": "1"}
    settings = {"epochs": 3}
    for environment in ({}, first, again):  # ended before they had a run
        assert restore_after_restart(environment, settings, "other") == (settings, "other")
    folder = RunFolder(str(tmp_path / "run"))
    record_run_for_restart(folder, {})
    record_run_for_restart(OtherWorkersFolder(), first)
    assert restore_after_restart(again, settings, None) == (settings, None)
    record_run_for_restart(folder, first)
    own = {**settings, "run_dir": str(folder.path)}
    assert restore_after_restart(first, settings, None) == (settings, None)
    assert restore_after_restart(again, settings, None) == (own, None)  # nothing was trained there
    folder.write_json("config.json", TrainConfig(checkpoint_every=9.0).to_dict())
    assert restore_after_restart(again, settings, None) == (own, str(folder.path))
    elsewhere = {"run_dir": str(tmp_path / "elsewhere")}
    assert restore_after_restart(again, elsewhere, None) == (elsewhere, None)
    record_run_for_restart(RunFolder(str(tmp_path), resumed=True), first)  # begun by other workers
    assert restore_after_restart(again, settings, None) == (own, str(folder.path))


def begun_run(path):
    """Return its folder, and the environment of its workers as they are started again."""
    environment = {"KDIST_LAUNCH_NOTES": str(path), "KDIST_RESTART_COUNT": "1"}
    folder = RunFolder(str(path / "begun"))
    record_run_for_restart(folder, environment)
    return folder, environment


def test_a_run_without_checkpoints_begins_again_in_its_folder(tmp_path):
    folder, environment = begun_run(tmp_path)
    own = {"run_dir": str(folder.path)}
    lines: list[str] = []

    def restart(place=""):
        return restore_after_restart(
            {**environment, "TF_CONFIG": place}, {}, None, announce=lines.append
        )

    folder.write_json("config.json", TrainConfig().to_dict())
    folder.history.write_text("epoch,seconds\n1,2\n")
    for name in (".7.summary.json", "model.weights.h5"):
        (folder.path / name).touch()
    (folder.path / "tensorboard" / "train").mkdir(parents=True)
    (folder.path / "notes.txt").touch()  # the user's, so that nothing is removed
    assert restart() == (own, None)
    (folder.path / "notes.txt").unlink()
    assert restart(tf_config("worker", 1, worker=["a:1", "b:1"])) == (own, None)
    assert (folder.history.exists(), lines) == (True, [])
    assert restart() == (own, None)
    assert lines == [
        f"{folder.path} has no checkpoints (see --checkpoint-every): training starts again"
    ]
    assert list(folder.path.iterdir()) == []
    folder.discard()  # removes the folder, too
    assert (restart(), lines[1:]) == ((own, None), [])


def test_a_finished_run_does_not_begin_again(tmp_path):
    folder, environment = begun_run(tmp_path)
    own = {"run_dir": str(folder.path)}
    folder.write_json("config.json", TrainConfig().to_dict())
    folder.history.write_text("epoch,seconds\n1,2\n")
    folder.write_json("summary.json", {"replicas": 1, "global_batch": 8, "seconds": 2})
    restored = restore_after_restart(environment, {}, None, announce=lambda _: None)
    assert restored == (own, str(folder.path))
