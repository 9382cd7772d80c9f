import json

import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.training.config import TrainConfig
from kdist.tuning.chief_or_worker import role_variables
from kdist.tuning.loading import tuner_of
from kdist.tuning.run import tune
from kdist.tuning.search import Search
from kdist.tuning.search_folder import SearchFolder
from kdist.tuning.user_model import (
    check_input,
    checked_data,
    explain_errors_of,
    load_functions,
)

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


def test_functions_are_found_by_name(path):
    build, data = load_functions(f"{path}:build", "data")
    assert (build.__name__, data()) == ("build", None)


@pytest.mark.parametrize(
    ("function", "data", "words"),
    [
        ("biuld", "data", r"has no function biuld\(hp\)"),
        ("value", "data", r"has no function value\(hp\)"),
        ("build", "images", r"has no function images\(\)"),
        ("data", "data", r"data has to take one argument, as in def data\(hp\):"),
        ("build", "build", r"build has to take no argument, as in def build\(\):"),
    ],
)
def test_functions_that_are_not_there_are_told(path, function, data, words):
    with pytest.raises(UserError, match=words):
        load_functions(f"{path}:{function}", data)


@pytest.mark.parametrize("data", [None, 3, [1, 2], ((1, 2), (3, 4), (5, 6))])
def test_other_data_are_refused(data):
    with pytest.raises(UserError, match=r"expected \(x, y\), \(x_val, y_val\)"):
        checked_data(data)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.ones((3, 2)), np.ones(2), "with 3 and 2 samples"),
        ({"a": np.ones(3), "b": [np.ones(3), np.ones(4)]}, None, "with 3 and 4 samples"),
        (np.ones((0, 2)), np.ones(0), "without samples"),
    ],
)
def test_numbers_of_samples_are_checked(x, y, words):
    right = (np.ones((3, 2)), [1, 2, 3])
    with pytest.raises(UserError, match=rf"returned \(x, y\) {words}"):
        checked_data(((x, y), right))
    with pytest.raises(UserError, match=rf"returned \(x_val, y_val\) {words}"):
        checked_data((right, (x, y)))


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


def test_errors_of_kdist_and_keras_are_not_the_files(path):
    for error in (ValueError("not from the file"), UserError("of kdist")):
        with pytest.raises(type(error)) as raised, explain_errors_of(path):
            raise error
        assert raised.value is error


class Both(keras.Model):
    def call(self, inputs):
        return inputs["a"] + keras.ops.cast(inputs["b"], "float32")


@pytest.mark.parametrize(
    "x",
    [
        {"a": np.ones((4, 2)), "b": np.ones((4, 2), "int32")},
        [[1.0, 2.0]],  # for Keras to convert
        np.array(["text"], object),
    ],
)
def test_any_input_that_a_model_takes_or_that_is_no_array_is_taken(x):
    check_input(Both(), x)


def test_a_model_that_is_not_called_takes_any_input():
    check_input(keras.Model(), np.ones((4, 2)))


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("resumed", "ended", "left"), [(False, [], False), (False, ["0"], True), (True, [], True)]
)
def test_a_search_that_fails_before_a_trial_has_ended_leaves_nothing(
    tmp_path, monkeypatch, error, resumed, ended, left
):
    search = Search(output=str(tmp_path / "runs" / "tune"))
    folder = SearchFolder(search.output)

    def fail(*_):
        (folder.trials / "trial_0").mkdir(parents=True)
        folder.write_json("trials/oracle.json", {"start_order": [], "end_order": ended})
        raise error

    if resumed:
        folder.open(search)
        folder.close()
    monkeypatch.setattr("kdist.tuning.run._run", fail)
    with pytest.raises(type(error)):
        tune(search, announce=lambda line: None)
    assert (tmp_path / "runs").exists() == left
    if left:
        assert (folder.path / "search.json").exists()


def test_a_chief_leaves_the_trials_of_its_workers(tmp_path, monkeypatch):
    for name, value in role_variables("chief", ip="127.0.0.1", port=4000).items():
        monkeypatch.setenv(name, value)
    search = Search(output=str(tmp_path / "tune"))

    def fail(*_):
        (tmp_path / "tune" / "trials" / "trial_0").mkdir(parents=True)
        raise UserError("no")

    monkeypatch.setattr("kdist.tuning.run._run", fail)
    with pytest.raises(UserError):
        tune(search, announce=lambda line: None)
    assert (tmp_path / "tune" / "trials" / "trial_0").exists()


def test_a_folder_of_other_hyperparameters_is_refused(path, tmp_path):
    with open(path, "a") as file:
        file.write("\ndef data():\n    return (1, 1), (1, 1)\n")
    search = Search(
        model=f"{path}:build", output=str(tmp_path / "out"), config=TrainConfig(replicas=1)
    )
    folder = SearchFolder(search.output)
    folder.open(search)
    folder.close()
    space = {"space": [{"class_name": "Int", "config": {"name": "layers"}}]}
    folder.write_json("space.json", space)
    with pytest.raises(UserError, match=r"other hyperparameters \(layers, units\)"):
        tune(search, announce=lambda line: None)
    assert json.loads((folder.path / "space.json").read_text()) == space


def test_xla_on_several_cpus_is_told_before_the_first_trial(tmp_path):
    config = TrainConfig(dataset="sample", replicas=2, xla=True)
    with pytest.raises(UserError, match="without --xla"):
        tune(Search(config=config, output=str(tmp_path / "out")), announce=lambda line: None)
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_search_has_no_tuner(tmp_path):
    with pytest.raises(UserError, match="there is no search in"):
        tuner_of(str(tmp_path))
