import csv
import json
import signal
from contextlib import closing

import pytest
from interrupting_model import interrupting_model
from kdist.checkpoint.store import CheckpointStore
from kdist.cli.app import app
from kdist.errors import UserError
from kdist.signals import raise_signals
from kdist.study import search_run
from kdist.study.folder import StudyFolder
from kdist.study.search_processes import role_variables
from kdist.study.search_run import trial_trackers, tune, tuner_of
from kdist.study.search_settings import Search
from kdist.study.search_trials import read_trials
from kdist.training.config import TrainConfig

MODEL = """
import keras

def build(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 4))])
    model.compile("sgd", "mse")
    return model

def data():
    return None

value = 1
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


def test_wrong_data_are_told_before_the_first_trial(path, tmp_path):
    search = Search(
        model=f"{path}:build", output=str(tmp_path / "out"), config=TrainConfig(replicas=1)
    )
    with pytest.raises(UserError, match="the data function returned NoneType"):
        tune(search, announce=lambda line: None)
    assert not (tmp_path / "out").exists()


WITH_DATA = """
import keras
import numpy as np

x = np.ones((16, 2), "float32")

def data():
    return (x, x[:, 0]), (x, x[:, 0])

def build(hp):
    units = hp.Int("units", 1, 4)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    return model
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("import keras\n", "import kerass\n", "line 2: ModuleNotFoundError: No module named"),
        ("def build(hp):", "def build(hp)", "line 10: SyntaxError: expected ':'"),
        ("return (x, x", "raise OSError('gone'); (x, x", "line 8: OSError: gone$"),
        ("import keras\n", "import sys\nsys.exit('done')\n", "line 3: SystemExit: done"),
        ("    units = ", "    raise SystemExit(3)\n    units = ", "line 11: SystemExit: 3"),
        (
            "(x, x[:, 0])\n",
            "(x[:, [0, 1, 1]], x[:, 0])\n",
            r"the model of build\(hp\) does not take the validation data: ValueError: .* expected"
            r" shape=\(None, 2\), found shape=\(None, 3\)",
        ),
        ("    units = ", "    hp.nothing = hp.nothing\n    units = ", "line 11: AttributeError: "),
        (
            '    model.compile("sgd", "mse")\n',
            "",
            r"build\(hp\) returned Sequential that is not compiled",
        ),
        (
            "keras.Input((2,))",
            "keras.Input((5,))",
            r"the model of build\(hp\) does not take the training data: ValueError: .* expected"
            r" shape=\(None, 5\), found shape=\(None, 2\)",
        ),
        ("", "", "trials are compared by val_accuracy, but training reported loss, val_loss"),
    ],
)
def test_what_is_wrong_with_the_file_ends_the_search_and_leaves_nothing(
    path, tmp_path, right, wrong, words, monkeypatch
):
    with open(path, "w") as file:
        file.write(WITH_DATA.replace(right, wrong, 1))
    monkeypatch.chdir(tmp_path)
    epochs = TrainConfig(replicas=1, epochs=1)
    search = Search(model=f"{path}:build", output="runs/tune", config=epochs)
    with pytest.raises(UserError, match=words) as raised:
        tune(search, announce=lambda line: None)
    assert "\n" not in str(raised.value)
    assert [found.name for found in tmp_path.iterdir() if found.suffix != ".py"] in (
        [],
        ["__pycache__"],
    )


BATCHES = """
import keras
import tensorflow as tf

def data():
    x = tf.random.stateless_uniform((24, 2), seed=(1, 2))
    pairs = tf.data.Dataset.from_tensor_slices((x, x[:, 0]))
    return pairs.batch(8), pairs.take(12).batch(8)

def sized(batch_size):
    assert batch_size == 16
    x = tf.random.stateless_uniform((24, 2), seed=(1, 2))
    pairs = tf.data.Dataset.from_tensor_slices((x, x[:, 0]))
    return pairs.batch(batch_size), pairs.take(12).batch(batch_size)

def build(hp):
    units = hp.Int("units", 1, 2)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model

class Stepping(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}

def stepping(hp):
    model = Stepping([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 1))])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model

def own(hp):
    hp.Choice("batch_size", [8, 16])
    return build(hp)
"""


@pytest.mark.parametrize(
    ("function", "data", "batch", "rate"),
    [("build", "data", 32, 0.5), ("build", "sized", 8, 1.0), ("stepping", "data", 32, 0.5)],
)
def test_a_search_takes_batches_of_the_users(path, tmp_path, function, data, batch, rate):
    with open(path, "w") as file:
        file.write(BATCHES)
    search = Search(
        model=f"{path}:{function}",
        data=data,
        objective="loss",
        max_trials=1,
        output=str(tmp_path / "out"),
        config=TrainConfig(replicas=1 + (function == "build"), epochs=1, batch_size=batch),
    )
    folder = tune(search, announce=lambda line: None)
    (trial,) = read_trials(folder, search)
    assert (trial.status, trial.failure) == ("COMPLETED", "")
    model = tuner_of(search.output).get_best_models()[0]
    assert float(model.optimizer.learning_rate.numpy()) == rate


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        ("build", 16, r"received --batch-size 16, but .* data\(\) returns batches of its own"),
        ("own", 32, "declares batch_size, but the data have batches of their own"),
    ],
)
def test_a_batch_size_for_the_users_own_batches_is_refused(path, tmp_path, function, batch, words):
    with open(path, "w") as file:
        file.write(BATCHES)
    search = Search(
        model=f"{path}:{function}",
        output=str(tmp_path / "out"),
        config=TrainConfig(replicas=2, batch_size=batch),
    )
    with pytest.raises(UserError, match=words):
        tune(search, announce=lambda line: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("resumed", "ended", "saved", "left"),
    [
        (False, [], False, False),
        (False, ["0"], False, True),
        (False, [], True, True),
        (True, [], False, True),
    ],
)
def test_a_search_with_nothing_to_resume_leaves_nothing(
    tmp_path, monkeypatch, error, resumed, ended, saved, left
):
    search = Search(output=str(tmp_path / "runs" / "tune"))
    folder = StudyFolder(search.output)

    def fail(*_):
        checkpoints = folder.trials / "trial_0" / "checkpoints" / "execution-0"
        checkpoints.mkdir(parents=True)
        (checkpoints / "best.weights.h5").touch()  # of an epoch, without what its trial needs
        folder.write("trials/oracle.json", {"start_order": [], "end_order": ended})
        if saved:
            with closing(CheckpointStore(checkpoints)) as store:
                store.commit(epoch=1, batch=2, arrays={}, state={})
        raise error

    if resumed:
        with folder.open(search.about):
            pass
    monkeypatch.setattr("kdist.study.search_run._run", fail)
    with pytest.raises(type(error)):
        tune(search, announce=lambda line: None)
    assert (tmp_path / "runs").exists() == left
    if left:
        assert (folder.path / "study.json").exists()


def test_what_is_printed_after_a_signal_is_true(path, tmp_path, capsys):
    with open(path, "w") as file:
        file.write(interrupting_model("os.kill(os.getpid(), signal.SIGTERM)"))
    output = tmp_path / "out"
    command = ["tune", f"{path}:build", "--objective", "loss", "--max-trials", "1", "--replicas"]
    command += ["1", "--epochs", "2", "--output", str(output)]

    def run():
        with raise_signals():
            return app(command, exit_on_error=False, print_error=False)

    (tmp_path / "signals").touch()
    assert run() == 128 + signal.SIGTERM
    assert capsys.readouterr().out.endswith("Interrupted: the same command resumes the search.\n")
    assert list(output.glob("trials/trial_0/checkpoints/execution-0/e*"))
    assert run() == 0
    assert "Resuming" in capsys.readouterr().out
    assert [trial["epochs"] for trial in table(output)] == ["2"]


def test_a_signal_before_anything_was_saved_leaves_nothing(path, tmp_path, capsys, monkeypatch):
    with open(path, "w") as file:
        file.write(interrupting_model("os.kill(os.getpid(), signal.SIGTERM)"))

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("kdist.study.search_run._run", fail)
    output = tmp_path / "out"
    assert app(["tune", f"{path}:build", "--output", str(output)]) == 128 + signal.SIGINT
    assert capsys.readouterr().out == "Interrupted: the same command begins anew.\n"
    assert not output.exists()


def table(output):
    with open(output / "trials.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_chief_leaves_the_trials_of_its_workers(tmp_path, monkeypatch):
    for name, value in role_variables("chief", ip="127.0.0.1", port=4000).items():
        monkeypatch.setenv(name, value)
    search = Search(output=str(tmp_path / "tune"))

    def fail(*_):
        (tmp_path / "tune" / "trials" / "trial_0").mkdir(parents=True)
        raise UserError("no")

    monkeypatch.setattr("kdist.study.search_run._run", fail)
    with pytest.raises(UserError):
        tune(search, announce=lambda line: None)
    assert (tmp_path / "tune" / "trials" / "trial_0").exists()


def test_a_folder_of_other_hyperparameters_is_refused(path, tmp_path):
    with open(path, "a") as file:
        file.write("\ndef data():\n    return (1, 1), (1, 1)\n")
    search = Search(
        model=f"{path}:build", output=str(tmp_path / "out"), config=TrainConfig(replicas=1)
    )
    folder = StudyFolder(search.output)
    with folder.open(search.about):
        pass
    space = {"space": [{"class_name": "Int", "config": {"name": "layers"}}]}
    folder.write("space.json", space)
    with pytest.raises(UserError, match=r"other hyperparameters \(layers, units\)"):
        tune(search, announce=lambda line: None)
    assert json.loads((folder.path / "space.json").read_text()) == space


def test_a_folder_without_a_search_has_no_tuner(tmp_path):
    with pytest.raises(UserError, match="there is no search in"):
        tuner_of(str(tmp_path))


# Trackers


@pytest.fixture
def asked(monkeypatch):
    """What `tracking` was asked for."""
    seen = []
    monkeypatch.setattr(
        search_run, "tracking", lambda *names, **options: seen.append((names, options)) or []
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
        config=TrainConfig(track="wandb", time_budget=60),
    )
    make = trial_trackers(search, StudyFolder(str(tmp_path / "search")), replicas=2)
    make("0", 0, {"units": 3})
    (_, options) = asked[0]
    assert options["run_name"] == "search-0"
    assert options["hyperparameters"] == {"units": 3}
    assert options["config"] == {"units": 3, "replicas": 2, "global_batch": 64}
    assert options["objective"] == ("seconds_to_target", "min")
