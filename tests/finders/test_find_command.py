"""The command, on the example; wrong arguments before TensorFlow is imported."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from kdist.cli.find import app
from kdist.errors import UserError
from kdist.finders import batch_size, measure_memory, memory, plan
from kdist.finders.advice import Advice, Measurements
from kdist.finders.batch_size import BatchSize, BatchSizeTry
from kdist.finders.memory import MemoryEstimate
from kdist.finders.one_try import TryResult
from kdist.finders.plan import Plan, plan_replicas
from kdist.finders.rate_curve import RateCurve
from kdist.performance.links import LINKS

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_cnn.py"
MODEL = f"{EXAMPLE}:build"
CURVE = RateCurve(
    rates=[10.0**i for i in range(-9, 1)],
    losses=[2.0, 2.0, 1.9, 1.8, 1.5, 1.2, 1.0, 0.9, 2.0, 5.0],
    smoothed=[2.0, 2.0, 1.9, 1.8, 1.5, 1.2, 1.0, 0.9, 2.0, 5.0],
    diverged=True,
)
ESTIMATE = MemoryEstimate(
    batch_size=64, weights=2**20, optimizer=2**21, gradients=2**20, activations=2**26, unknown=1
)


def find(*arguments):
    return app(arguments, exit_on_error=False, print_error=False, result_action="return_value")


def test_rate_of_the_example(tmp_path):
    command = [sys.executable, "-m", "kdist", "find", "rate", MODEL, "--steps=12", "--batch-size=8"]
    done = subprocess.run(
        [*command, "--replicas=2", "--output=found"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "suggested learning rate: " in done.stdout
    with open(tmp_path / "found" / "learning-rate.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert float(rows[-1]["learning_rate"]) == 10
    assert (tmp_path / "found" / "learning-rate.png").read_bytes().startswith(b"\x89PNG")


def test_batch_passes_its_options(monkeypatch, capsys):
    asked = {}

    def found(model, data, **options):
        asked.update(options, model=model, data=data)
        return BatchSize(batch_size=95, largest=100, limit="memory", tries=())

    monkeypatch.setattr(batch_size, "find_batch_size", found)
    find("batch", MODEL, "--memory-gib=0.5", "--start=8", "--replicas=2", "--margin=0.1")
    del asked["announce"]
    assert asked == {
        "model": MODEL,
        "data": "data",
        "replicas": 2,
        "start": 8,
        "most": 65536,
        "margin": 0.1,
        "steps": 3,
        "memory": 2**29,
    }
    assert capsys.readouterr().out.splitlines() == [
        "largest batch size per replica that works: 100 (the next larger does not fit into the"
        " memory)",
        "use --batch-size 95",
    ]


def test_memory_with_and_without_measuring(monkeypatch, capsys):
    monkeypatch.setattr(memory, "estimate_memory", lambda *_, **__: ESTIMATE)
    find("memory", MODEL)
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == ["estimate", "per", "replica", "68.0", "MiB"]
    assert lines[5].startswith("not counted: 1 operations")
    half = MemoryEstimate(batch_size=32, weights=0, optimizer=0, gradients=0, activations=2**25)
    results = (TryResult(works=True, peak=2**27), TryResult(works=True, peak=2**28))
    monkeypatch.setattr(
        measure_memory, "measure_memory", lambda *_, **__: (half, ESTIMATE, results)
    )
    find("memory", MODEL, "--measure")
    assert "measured per replica: 256.0 MiB with 64 samples" in capsys.readouterr().out


def test_plan_measures_and_advises(monkeypatch):
    """All that is measured is given; what follows from it is that of `advise`."""
    monkeypatch.setattr(
        plan, "run_in_process", lambda tried: TryResult(works=True, seconds=0.01, peak=2**20)
    )
    monkeypatch.setattr(plan, "range_test", lambda *_, **__: CURVE)
    monkeypatch.setattr(plan, "_NOISE_STEPS", 4)
    said = []
    found = plan_replicas(MODEL, replicas=4, batch_size=16, announce=said.append)
    assert found.measurements.seconds == {16: 0.01}
    assert found.measurements.optimizer == "SGD"
    # 9 * 32 + 9 * 32 * 64 + 64 * 10 + 10 of the layers, 2 * (32 + 64) of the batch norms.
    assert found.measurements.gradient_bytes == 4 * (288 + 18432 + 650 + 192)
    assert found.measurements.small_collectives == 4
    assert found.advice.global_batch == 64
    assert found.advice.learning_rate == pytest.approx(4 * CURVE.suggestion)
    assert found.lines()[0].startswith("on 4 replicas: batch 16 each")
    assert said[0].startswith("batch 16: works")


def test_plan_of_data_with_batches_of_their_own(monkeypatch, tmp_path):
    """They are batched anew, by all parts: of 20 samples, 2 batches of 8."""
    path = tmp_path / "batched.py"
    path.write_text(BATCHED)
    monkeypatch.setattr(plan, "run_in_process", lambda tried: TryResult(works=True, seconds=1.0))
    monkeypatch.setattr(plan, "_NOISE_STEPS", 4)
    found = plan_replicas(f"{path}:build", replicas=2, batch_size=8, steps=12)
    assert found.measurements.rate_batch == 8
    assert found.advice.global_batch == 16
    assert len(found.curve.losses) > 2


def test_plan_says_at_once_that_the_data_are_too_few(monkeypatch):
    monkeypatch.setattr(plan, "run_in_process", lambda tried: TryResult(works=True, seconds=1.0))
    monkeypatch.setattr(plan, "range_test", lambda *_, **__: pytest.fail("trains"))
    with pytest.raises(UserError, match="samples, fewer than a batch of 9999 replicas"):
        plan_replicas(MODEL, replicas=9999, batch_size=8)


BATCHED = """
import keras, numpy as np, tensorflow as tf


def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def data():
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(5), None
"""


def test_plan_compares_the_batches_that_were_tried(monkeypatch):
    """Of the largest, 100, the margin of 5 % is left free; a failed and an untimed one are out."""
    times = {16: 0.02, 32: None, 64: 0.05, 100: 0.08}
    tries = [
        BatchSizeTry(batch_size=batch, result=TryResult(works=True, seconds=seconds))
        for batch, seconds in times.items()
    ]
    tries.append(BatchSizeTry(batch_size=128, result=TryResult(works=False, why="memory")))
    found = BatchSize(batch_size=95, largest=100, limit="memory", tries=tuple(tries))
    monkeypatch.setattr(plan, "find_batch_size", lambda *_, **__: found)
    seconds = plan._seconds(MODEL, "data", None, print)
    assert seconds == pytest.approx({16: 0.02, 64: 0.05, 95: 0.08 * 0.95})


def test_plan_of_the_command_line(monkeypatch, capsys):
    measured = Measurements(
        seconds={16: 0.1},
        noise_scale=100.0,
        rate=0.1,
        rate_batch=16,
        optimizer="SGD",
        gradient_bytes=1e6,
    )
    advice = Advice(
        replicas=8,
        batch_size=16,
        learning_rate=0.4,
        warmup_epochs=5,
        speedup=5.1,
        slowest=3.0,
        fastest=6.0,
    )
    made = Plan(advice=advice, measurements=measured, curve=CURVE, link=LINKS["pcie"])
    monkeypatch.setattr(plan, "plan_replicas", lambda *_, **__: made)
    find("plan", MODEL, "--replicas=8")
    assert (
        "on 8 replicas: batch 16 each, learning rate 0.4, warm-up 5 epochs, 5.1 times as fast"
        " (3.0 to 6.0)" in capsys.readouterr().out
    )


WRONG = (
    ["batch", "nothing.py:build"],
    ["batch", "build"],
    ["batch", MODEL, "--replicas=0"],
    ["batch", MODEL, "--memory-gib=-1"],
    ["rate", MODEL, "--steps=3"],
    ["rate", MODEL, "--least=1", "--most=0.1"],
    ["rate", MODEL, "--batch-size=0"],
    ["memory", MODEL, "--data=nothing.py:data"],
    ["memory", MODEL, "--measure", "--batch-size=1"],
    ["plan", MODEL],
    ["plan", MODEL, "--replicas=0"],
    ["plan", MODEL, "--replicas=2", "--link=wire"],
    ["plan", MODEL, "--replicas=2", "--lr-rule=cubic"],
)
CHECK = f"""
import sys
from kdist.cli import main
for arguments in {json.dumps(WRONG)}:
    sys.argv = ["kdist", "find", *arguments]
    try:
        main()
    except SystemExit as end:
        print(end.code)
assert "tensorflow" not in sys.modules
"""


def test_wrong_arguments_are_refused_before_tensorflow_is_imported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["2"] * len(WRONG), done.stderr
    assert done.stderr.count("kdist: error: ") == len(WRONG)
    assert list(tmp_path.iterdir()) == []
