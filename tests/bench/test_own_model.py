from pathlib import Path

import pytest
from kdist.bench import run as bench_run
from kdist.bench.driver import Outcome
from kdist.bench.own_model import own_model
from kdist.bench.workloads import WORKLOADS
from kdist.errors import UserError

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "my_model.py")

DATASETS = """
import keras
import tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def data():
    return tf.data.Dataset.from_tensor_slices((tf.ones((20, 2)), tf.ones((20, 1)))).batch(8)


def uncompiled():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
"""


def test_the_candidates_take_the_users_functions(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    benchmark = own_model(f"{EXAMPLE}:build", "data", batch=64, steps=3)
    settings = {"model": f"{EXAMPLE}:build", "data": "data", "batch": 64, "steps": 3}
    assert [(one.name, one.workload, one.settings) for one in benchmark.candidates] == [
        ("stock Keras", "stock_model", {**settings, "replicas": 1}),
        ("kdist, one replica", "kdist_model", {**settings, "replicas": 1}),
        ("stock MirroredStrategy, 3 replicas", "stock_model", {**settings, "replicas": 3}),
        ("kdist, 3 replicas", "kdist_model", {**settings, "replicas": 3}),
    ]
    names = {candidate.name for candidate in benchmark.candidates}
    assert all({one.name, *one.bases} <= names for one in benchmark.comparisons)


@pytest.mark.parametrize(
    ("model", "replicas", "words"),
    [
        ("nosuch.py:build", None, "there is no file nosuch.py"),
        ("my_model", None, "a model has to be given as FILE.py:FUNCTION, received my_model"),
        (f"{EXAMPLE}:build", 1, "received --replicas 1, but several replicas are compared with"),
    ],
)
def test_what_cannot_be_compared(model, replicas, words):
    with pytest.raises(UserError, match=words):
        own_model(model, "data", replicas=replicas)


@pytest.mark.parametrize("kind", ["stock_model", "kdist_model"])
def test_as_many_samples_as_the_steps_take(kind, tmp_path):
    settings = {"replicas": 1, "batch": 16, "data": "data"}
    workload = WORKLOADS[kind](model=f"{EXAMPLE}:build", steps=2, **settings)
    assert workload.facts == {"samples": 32}
    assert workload.work() > 0
    (tmp_path / "datasets_to_time.py").write_text(DATASETS)
    model = f"{tmp_path / 'datasets_to_time.py'}:build"
    workload = WORKLOADS[kind](model=model, steps=2, **settings)
    assert workload.facts == {"samples": 16}  # of the data's own batches
    assert workload.work() > 0
    assert WORKLOADS[kind](model=model, steps=5, **settings).facts == {"samples": 20}
    with pytest.raises(UserError, match="that is not compiled, expected a compiled keras.Model"):
        WORKLOADS[kind](model=model.replace(":build", ":uncompiled"), steps=2, **settings)


def test_only_the_users_model_is_run(monkeypatch, tmp_path):
    benchmark, seen = own_model(f"{EXAMPLE}:build", "data"), []

    def run_benchmark(one, *, rounds, announce):
        seen.append((one, rounds))
        return {name.name: Outcome(facts={"samples": 4}, seconds=[1.0]) for name in one.candidates}

    monkeypatch.setattr(bench_run, "run_benchmark", run_benchmark)
    path = str(tmp_path / "bench.json")
    text = bench_run.bench(output=path, own=benchmark, announce=lambda line: None)
    assert seen == [(benchmark, 7)]
    assert "| kdist, one replica | 4 samples |" in text
    assert bench_run.show(path) == text


def test_an_error_that_all_have_is_the_users(monkeypatch, tmp_path):
    why = "UserError: my_model.py, line 2: ValueError: no such thing"
    monkeypatch.setattr(
        bench_run,
        "run_benchmark",
        lambda one, **_: {name.name: Outcome(skipped=why) for name in one.candidates},
    )
    with pytest.raises(UserError, match=r"could train the model: my_model.py, line 2: ValueError"):
        bench_run.bench(
            output=str(tmp_path / "bench.json"),
            own=own_model(f"{EXAMPLE}:build", "data"),
            announce=lambda line: None,
        )
