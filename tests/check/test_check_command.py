"""`kdist check` on a file, with two workers: what it prints and writes, and its exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
import keras
import numpy as np
from keras import layers

X = np.random.normal(size=(40, 6)).astype("float32")  # as the file is loaded, after the seed


def make(*between):
    model = keras.Sequential([keras.Input((6,)), *between, layers.Dense(1, name="last")])
    model.compile("sgd", "mse")
    return model


def build():
    return make(layers.Dense(4), layers.BatchNormalization())


def fails():
    return make(layers.Dense(4), layers.Reshape((3,)))


def data():
    return X, X.sum(axis=1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("check")
    (path / "my_model.py").write_text(MODEL)
    return path


def check(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "kdist", "check", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )


def test_a_good_model_on_two_workers_is_equal(folder):
    options = (
        "--replicas",
        "2",
        "--workers",
        "2",
        "--steps",
        "2",
        "--no-stock",
        "--json",
        "r.json",
    )
    done = check(folder, "my_model.py:build", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("equal: 2 replicas of kdist and 2 workers of kdist")
    written = json.loads((folder / "r.json").read_text())
    assert written["equal"] is True
    assert [one["name"] for one in written["trainings"]] == [
        "2 replicas of kdist",
        "2 workers of kdist",
    ]
    assert all(one["equal"] for one in written["trainings"])
    assert written["stock"] is None


def blocks_of_the_guide():
    """The model and the output that the guide shows."""
    page = (Path(__file__).parents[2] / "docs" / "guide" / "check.md").read_text()
    model, output = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    return model, output


def without_numbers(text):
    return re.sub(r"(off by|up to|differs by) [0-9.e+-]+", r"\1 …", text)


def test_other_commands_take_the_example_of_the_guide_too(tmp_path):
    from kdist.user_model.functions import load_functions

    path = tmp_path / "example_of_guide.py"
    path.write_text(blocks_of_the_guide()[0])
    assert load_functions(f"{path}:build", "data").load_data(8).samples() == 40


def test_the_example_of_the_guide_prints_what_it_shows(tmp_path):
    model, output = blocks_of_the_guide()
    (tmp_path / "my_model.py").write_text(model)
    done = check(tmp_path, "my_model.py:build", "--replicas", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert without_numbers(done.stdout) == without_numbers(output)


def test_a_model_that_does_not_train_on_one_replica_is_bad_input(folder):
    done = check(folder, "my_model.py:fails", "--replicas", "2")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "my_model.py" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.py:build"], "there is no file nosuch.py"),
        (["my_model.py"], "FILE.py:FUNCTION"),
        (["my_model.py:build", "--replicas", "1"], "replicas has to be an integer from 2"),
        (["my_model.py:build", "--steps", "1"], "steps has to be an integer from 2"),
        (["my_model.py:build", "--workers", "1"], "received --workers 1"),
        (["my_model.py:build", "--batch-size", "1"], "batch_size has to be"),
        (["my_model.py:build", "--data", "other.py:data"], "there is no file other.py"),
        (["my_model.py:build", "--json", "."], "--json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_tensorflow(arguments, message, folder, monkeypatch):
    from kdist.cli.app import app
    from kdist.errors import UserError

    monkeypatch.chdir(folder)

    def trained(*_, **__):
        raise AssertionError("it began to train")

    monkeypatch.setattr("kdist.check.check_file._checked", trained)
    with pytest.raises(UserError, match=message):
        app(["check", *arguments], exit_on_error=False, print_error=False)
    assert not Path(folder, "r2.json").exists()
