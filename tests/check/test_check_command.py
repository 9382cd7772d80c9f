"""`kdist check`: a file, this machine's devices, workers; what it prints and its exit codes."""

import json

import pytest
from kdist.cli import make_app
from kdist.errors import UserError
from kdist.tools.check import run_check_command
from kdist.tools.check.built_in_models import BUILT_IN_MODELS
from kdist.tools.check.comparison import CheckResult

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
    return make(layers.Dense(4))


def unseeded():
    return make(layers.Dense(4, kernel_initializer=lambda *_, **__: np.random.default_rng().normal(
        size=(6, 4))))


def fails():
    return make(layers.Dense(4), layers.Reshape((3,)))


def data():
    return X, X.sum(axis=1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(MODEL)
    return tmp_path


def check(*arguments):
    return make_app()(["check", *arguments], exit_on_error=False, print_error=False)


@pytest.mark.usefixtures("folder")
def test_a_step_is_explained_without_training(monkeypatch, capsys):
    monkeypatch.setattr("kdist.tools.check.check_model.run_check", None)
    assert check("my_model.py:build", "--replicas", "2", "--batch-size", "20") == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(" on 2 replicas (CPU:0, CPU:1), a batch of 20 rows:")
    assert second.startswith("100 % of the work on the batch is divided; ")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("build", "code"), [("build", 0), ("unseeded", 1)])
def test_a_model_is_trained_with_run(build, code, capsys):
    assert check(f"my_model.py:{build}", "--replicas", "2", "--run", "--steps", "2") == code
    printed = capsys.readouterr().out
    assert f"\n\n{'NOT EQUAL' if code else 'equal'} to one replica of stock Keras\n" in printed
    assert ("two runs on one replica" in printed) == bool(code)


@pytest.mark.usefixtures("folder")
def test_a_model_that_does_not_train_is_bad_input():
    with pytest.raises(UserError, match=r"my_model.py:\d+: "):
        check("my_model.py:fails", "--replicas", "2", "--run")


@pytest.mark.parametrize(
    "names", [list(BUILT_IN_MODELS)[:1], pytest.param(["XLA"], marks=pytest.mark.slow)]
)
def test_built_in_models_are_equal_on_logical_cpus(names, monkeypatch, capsys):
    models = {name: BUILT_IN_MODELS[name] for name in names}
    monkeypatch.setattr("kdist.tools.check.built_in_models.BUILT_IN_MODELS", models)
    assert check("--devices", "--replicas", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CPU:0, CPU:1; float64, 'equal' means within 1e-09")
    assert lines[1].split() == [*names[0].split(), "equal"]
    assert lines[-1] == "1 of 1 models match one replica of stock Keras"


def test_every_built_in_model_is_trained_and_one_that_differs_is_shown(monkeypatch, capsys):
    def run(functions, *_, **__):
        errors = {"2 replicas": "NCCL is broken"} if functions is BUILT_IN_MODELS["dropout"] else {}
        found = dict.fromkeys(["2 replicas"], ())
        return CheckResult(
            differences=found, errors=errors, unrepeatable=(), precision="float32", steps="1"
        )

    monkeypatch.setattr("kdist.tools.check.check_model.run_check", run)
    assert check("--devices") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "NOT EQUAL" in line] == ["dropout"]
    assert "    2 replicas: fails: NCCL is broken" in lines
    equal_count, count = len(BUILT_IN_MODELS) - 1, len(BUILT_IN_MODELS)
    assert lines[-1] == f"{equal_count} of {count} models match one replica of stock Keras"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a model .FILE.py:FUNCTION. or --devices, not both"),
        (["my_model.py:build", "--devices"], "needs a model .* not both"),
        (["nosuch.py:build"], "there is no file nosuch.py"),
        (["my_model.py"], "FILE.py:FUNCTION"),
        (["my_model.py:build", "--replicas", "1"], "replicas has to be from 2"),
        (["my_model.py:build", "--data", "other.py:data"], "there is no file other.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_anything_is_made(arguments, message, monkeypatch):
    monkeypatch.setattr("kdist.tools.check.check_model.make_strategies", None)
    with pytest.raises(UserError, match=message):
        check(*arguments)


def test_one_gpu_has_nothing_to_compare_with(monkeypatch):
    monkeypatch.setattr(run_check_command, "visible_gpus", lambda _: ["0"])
    with pytest.raises(UserError, match="machine has one GPU"):
        check("--devices")


@pytest.mark.usefixtures("folder")
def test_workers_do_not_check(monkeypatch):
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(UserError, match="run it alone, with --replicas"):
        check("my_model.py:build")
