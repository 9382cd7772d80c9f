import json

import pytest
from kdist.errors import UserError
from kdist.training.config import TrainConfig
from kdist.tuning.loading import tuner_of
from kdist.tuning.run import tune
from kdist.tuning.search import Search
from kdist.tuning.search_folder import SearchFolder
from kdist.tuning.user_model import checked_data, load_functions

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
    ],
)
def test_functions_that_are_not_there_are_told(path, function, data, words):
    with pytest.raises(UserError, match=words):
        load_functions(f"{path}:{function}", data)


@pytest.mark.parametrize("data", [None, 3, [1, 2], ((1, 2), (3, 4), (5, 6))])
def test_other_data_are_refused(data):
    with pytest.raises(UserError, match=r"expected \(x, y\), \(x_val, y_val\)"):
        checked_data(data)


def test_wrong_data_are_told_before_the_first_trial(path, tmp_path):
    search = Search(
        model=f"{path}:build", output=str(tmp_path / "out"), config=TrainConfig(replicas=1)
    )
    with pytest.raises(UserError, match="the data function returned NoneType"):
        tune(search, announce=lambda line: None)
    assert not (tmp_path / "out" / "trials").exists()


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
    assert not (tmp_path / "out" / "trials").exists()


def test_a_folder_without_a_search_has_no_tuner(tmp_path):
    with pytest.raises(UserError, match="there is no search in"):
        tuner_of(str(tmp_path))
