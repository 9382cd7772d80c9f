"""Files of users that are named like other modules."""

import importlib.util
import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.training.user_model.compiled_model import check_input
from kdist.training.user_model.user_data import check_data_result
from kdist.training.user_model.user_functions import (
    explain_user_errors,
    load_functions,
    split_data_name,
)

MODEL = """
import keras

def build():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
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
    functions = load_functions(f"{path}:build", "data")
    assert (functions.build.__name__, functions.make_data()) == ("build", None)
    assert functions.files == (path,)


@pytest.mark.parametrize(
    ("function", "data", "words"),
    [
        ("biuld", "data", r"has no function biuld\(\)"),
        ("value", "data", r"has no function value\(\)"),
        ("build", "images", r"has no function images\(\)"),
    ],
)
def test_functions_that_are_not_there_are_told(path, function, data, words):
    with pytest.raises(UserError, match=words):
        load_functions(f"{path}:{function}", data)


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
        check_data_result(((x, y), right))
    with pytest.raises(UserError, match=rf"returned \(x_val, y_val\) {words}"):
        check_data_result((right, (x, y)))


def test_errors_of_kdist_and_keras_are_not_the_files(path):
    load = explain_user_errors(path)(json.loads)
    with pytest.raises(json.JSONDecodeError):
        load("")


def test_a_strategy_in_the_file_is_told_to_be_removed(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "import keras, tensorflow as tf\n\n\ndef build():\n"
        "    with tf.distribute.OneDeviceStrategy('CPU:0').scope():\n"
        "        return keras.Sequential()\n\n\ndef data():\n    return None\n"
    )
    functions = load_functions(f"{path}:build", "data")
    with (
        tf.distribute.OneDeviceStrategy("CPU:0").scope(),
        pytest.raises(UserError, match=r"own.py:5: .* remove the strategy from this file"),
    ):
        functions.make_model()


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
    check_input(Both(), (x, None))


def test_a_model_that_is_not_called_takes_any_input():
    check_input(keras.Model(), (np.ones((4, 2)), None))


OTHER_KINDS = """
import keras
import tensorflow as tf

x = tf.reshape(tf.range(20.0), (10, 2))

def plain():
    return keras.Sequential()

def two(a, b):
    pass

def batched(batch_size):
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(batch_size)
    return data, data.take(1)

def arrays(batch_size=7):
    return (x, x), (x, x)

def fixed():
    return (x, x), None

def both(batch_size, shuffle):
    pass
"""


@pytest.fixture
def kinds(tmp_path):
    path = tmp_path / "kinds.py"
    path.write_text(OTHER_KINDS)
    return str(path)


@pytest.mark.parametrize(
    ("function", "data", "words"),
    [
        ("two", "arrays", "two has to take no argument, as in `def two"),
        ("plain", "both", "both has to take no argument, .* or only the batch"),
    ],
)
def test_functions_of_other_arguments_are_refused(kinds, function, data, words):
    with pytest.raises(UserError, match=words):
        load_functions(f"{kinds}:{function}", data)


def test_data_may_be_in_another_file(path, kinds):
    functions = load_functions(f"{path}:build", f"{kinds}:arrays")
    assert functions.files == (path, kinds)
    assert functions.load_data(4).has_arrays
    for name in (f"{kinds}:nothing.py", "other.py:data"):
        with pytest.raises(UserError, match="FILE.py:FUNCTION|no file other.py"):
            split_data_name(f"{path}:build", name)


def test_a_function_of_the_batch_is_called_with_it(kinds):
    functions = load_functions(f"{kinds}:plain", "batched")
    data = functions.load_data(4)
    sizes = [[len(x) for x, _ in part] for part in (data.training, data.validation)]
    assert sizes == [[4, 4, 2], [4]]
    assert data.known_batch_size() == 4
    functions.check_batch(data, 4)
    with pytest.raises(
        UserError,
        match="--val-batch-size 3, but .* returns batches, not arrays: leave out the option$",
    ):
        functions.check_batch(data, 4, 3)


def test_a_batch_for_data_that_have_their_own_is_refused(kinds):
    functions = load_functions(f"{kinds}:plain", "fixed")
    batches = tf.data.Dataset.range(4).batch(2)
    with pytest.raises(
        UserError, match="--batch-size 8, but fixed.. of .* returns batches, .*, or let"
    ):
        functions.check_batch(check_data_result(batches), 8)
    with pytest.raises(UserError, match="--val-batch-size 8, but fixed.. of .* returns batches"):
        functions.check_batch(check_data_result(batches), None, 8)
    functions.check_batch(check_data_result(batches), None)
    functions.check_batch(check_data_result((np.ones(2), np.ones(2))), 8, 8)


class HuggingFace:
    """What kdist knows a `datasets.Dataset` by."""

    shape = (6, 2)

    def to_tf_dataset(self):
        raise NotImplementedError


class Squares(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.full((3, 1), index), np.full((3, 1), index**2)


ROWS = (np.ones((6, 2)), np.ones(6))
ALL = tf.data.Dataset.from_tensor_slices(ROWS)
BATCHES = ALL.batch(4)


@pytest.mark.parametrize(
    ("data", "batch", "arguments"),
    [
        ((ROWS, ROWS), None, {"x", "y", "batch_size", "validation_data", "validation_batch_size"}),
        ((ROWS, None), None, {"x", "y", "batch_size"}),
        (
            [(*ROWS, np.ones(6)), BATCHES],
            None,
            {"x", "y", "sample_weight", "batch_size", "validation_data"},
        ),
        ((BATCHES, BATCHES), 4, {"x", "shuffle", "validation_data"}),
        ((BATCHES, ROWS), 4, {"x", "shuffle", "validation_data", "validation_batch_size"}),
        (BATCHES, 4, {"x", "shuffle"}),
        (BATCHES.map(lambda x, y: (x, y, y)).prefetch(1), 4, {"x", "shuffle"}),
        (ALL.batch(5, drop_remainder=True), 5, {"x", "shuffle"}),
        (BATCHES.unbatch().padded_batch(3), 3, {"x", "shuffle"}),
        (
            BATCHES.filter(lambda x, y: True),
            None,
            {"x", "shuffle"},
        ),  # of any size, for all that is known
        (Squares(), 3, {"x"}),
        ((Squares(), Squares()), 3, {"x", "validation_data"}),
    ],
)
def test_data_become_arguments_of_fit(data, batch, arguments):
    checked = check_data_result(data)
    assert checked.known_batch_size() == batch
    assert set(checked.fit_arguments(batch=8, validation_batch=2)) == arguments


X, Y = ROWS


@pytest.mark.parametrize(
    ("data", "training"),
    [
        ((X, Y), (X, Y)),
        ((X, Y, Y), (X, Y, Y)),
        (({"a": X, "b": X}, Y), ({"a": X, "b": X}, Y)),
        (([X, X], Y), ([X, X], Y)),
        ((X, (Y, Y)), (X, (Y, Y))),
        ((X, None), (X, None)),
        ((X,), (X, None)),
        (X, (X, None)),
        ({"a": X}, ({"a": X}, None)),
        ([(X, Y), (X, Y)], (X, Y)),
        ([[X, Y], None], (X, Y)),
        (((X, Y), (X, Y)), (X, Y)),
    ],
)
def test_arrays_alone_are_for_training(data, training):
    checked = check_data_result(data)
    assert repr(checked.training) == repr(training)
    has_validation = isinstance(data, tuple | list) and isinstance(data[-1], tuple)
    assert (checked.validation is not None) == (has_validation and isinstance(data[0], tuple))
    assert checked.has_arrays
    assert checked.known_samples() == 6


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        ((ROWS, None), 6),
        (BATCHES, 6),
        (BATCHES.shuffle(2).map(lambda x, y: (x, y)).cache().prefetch(1), 6),
        (ALL.batch(4, drop_remainder=True), 4),
        (ALL.padded_batch(4), 6),
        (BATCHES.take(1), None),
        (BATCHES.filter(lambda x, y: True), None),
        (ALL.filter(lambda x, y: True).batch(4), None),
        (Squares(), 6),
    ],
)
def test_samples_are_counted_where_something_says_how_many_they_are(data, samples):
    assert check_data_result(data).known_samples() == samples


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (BATCHES.repeat(), r"training data repeat without end, .* remove \.repeat\(\)"),
        ((BATCHES, BATCHES.repeat()), "validation data repeat without end"),
        (BATCHES.take(0), "training data without samples"),
        ({"train": HuggingFace(), "test": HuggingFace()}, r"return their to_tf_dataset\("),
        ((row for row in ROWS), "returned generator, expected"),
        ((None, BATCHES), "returned tuple, expected"),
        ((BATCHES, 3), "returned tuple, expected"),
        ((ROWS, ROWS, ROWS), "returned tuple, expected"),
        (list(ROWS), "returned list, expected"),
        ((*ROWS, 3), "returned tuple, expected"),
        (None, r"returned NoneType, expected arrays \(x, y\), a tf.data.Dataset or"),
        (({"a": ROWS[0]}, np.ones(3)), "with 6 and 3 samples"),
    ],
)
def test_data_that_fit_cannot_take_are_refused(data, words):
    with pytest.raises(UserError, match=words):
        check_data_result(data)


@pytest.mark.parametrize("features", [2, 3])
def test_batches_are_compared_with_what_a_model_takes(features):
    model = keras.Sequential([keras.Input((features,)), keras.layers.Dense(1)])
    if features == 2:
        check_input(model, BATCHES)
        return
    with pytest.raises(
        UserError, match=r"build rejects the shapes of the training data: .*\(None, 2\)"
    ):
        check_input(model, BATCHES, function="build")


def test_errors_of_either_file_are_told(path, kinds):
    with open(kinds, "a") as file:
        file.write("\ndef failing():\n    return 1 / 0\n")
    functions = load_functions(f"{path}:build", f"{kinds}:failing")
    line = OTHER_KINDS.count("\n") + 3
    with pytest.raises(UserError, match=rf"kinds.py:{line}: return 1 / 0: ZeroDivisionError: "):
        functions.load_data(4)


def test_a_script_parses_no_arguments_of_the_command(path, monkeypatch):
    """Those are for kdist; the script's have their defaults while it is loaded."""
    own = "import argparse\nparser = argparse.ArgumentParser()\n"
    own += "parser.add_argument('--rate', default=0.5)\nrate = parser.parse_args().rate\n"
    with open(path, "a") as file:
        file.write(own + "def rates():\n    return rate\n")
    monkeypatch.setattr("sys.argv", given := ["kdist", "check", f"{path}:build", "--data", "data"])
    assert load_functions(f"{path}:build", "rates").make_data() == 0.5
    assert sys.argv is given


NAMED_LIKE_ANOTHER = """
import random

import json
import keras

def build():
    return keras.Model

def data():
    return random.sample.__name__, __name__
"""


@pytest.mark.parametrize("name", ["keras", "json", "colorsys", "pip", "of my own"])
def test_a_file_may_be_named_like_a_module(tmp_path, monkeypatch, name):
    """Whether that is imported, built in, or installed; other code still imports what it means."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    own = f"{name}.py"
    (tmp_path / own).write_text(NAMED_LIKE_ANOTHER)
    before = sys.modules.get(name)
    functions = load_functions(f"{tmp_path / own}:build", "data")
    assert functions.build() is keras.Model
    drawn, module = functions.make_data()
    assert drawn == "sample"
    assert sys.modules[module].build is functions.build
    if name == "of my own":
        assert module == name
        return
    assert module != name
    assert sys.modules.get(name) is before
    assert importlib.util.find_spec(name).origin != str(tmp_path / own)


def test_two_files_of_one_name_are_two_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    names = {}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twin.py").write_text(
            f"def build():\n    return '{folder}'\n\ndef data():\n    return build()\n"
        )
        names[folder] = f"{tmp_path / folder / 'twin.py'}"
    functions = load_functions(f"{names['one']}:build", f"{names['two']}:data")
    assert (functions.build(), functions.make_data()) == ("one", "two")
    modules = [sys.modules[one.__module__] for one in (functions.build, functions.make_data)]
    assert [one.__file__ for one in modules] == list(names.values())
