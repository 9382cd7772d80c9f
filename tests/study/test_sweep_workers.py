"""Sweeps whose points train on several workers."""

import json
import os
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from fake_runs import FakeRuns, run, throughput
from kdist.errors import UserError
from kdist.report.inputs import find_sources
from kdist.report.results import find_results
from kdist.signals import ENDING, raise_signals, signal_of
from kdist.study import sweep_process as module
from kdist.study.sweep_experiment import Point, placements
from kdist.study.sweep_kinds import AccuracySweep, ScalingSweep, ThroughputSweep
from kdist.study.sweep_process import run_point
from kdist.study.sweep_run import check_experiment, check_shares
from kdist.training import TrainConfig, train

TINY = {"dataset": "sample", "subset": 96, "depth": 10, "width": 1, "val_batch_size": 50}


def accuracy(**values):
    settings = {"train": {**TINY, "target_accuracy": 0.9}, "batch_sizes": [24], "seeds": 1}
    settings |= {"lr_rules": ["linear"], "replicas": [1], "base_lr": 0.01, "base_batch": 24}
    return AccuracySweep(**{**settings, **values})


def scaling(**values):
    settings = {"train": {}, "batch_size": 8, "global_batch": 16, "replicas": [1]}
    settings |= {"modes": ["weak", "strong"], "epochs": 2, "rounds": 1, "workers": [1, 2]}
    return ScalingSweep(**{**settings, **values})


def test_a_point_has_the_replicas_of_all_workers_a_run_those_of_one():
    experiment = throughput(workers=[2], batch_sizes=[8], rounds=1, replicas=[1, 3])
    first, second = experiment.points()
    assert (first.name, second.name) == ("b8-r2-round1", "b8-r6-round1")
    assert (first.workers, second.config["replicas"], second.config["batch_size"]) == (2, 3, 8)
    for name, value in (("replicas", 6), ("workers", 2), ("global_batch", 48)):
        assert second.axes[name] == value
    assert experiment.timed_batch == 48
    (point,) = accuracy(workers=[2]).points()
    assert (point.axes["global_batch"], point.axes["replicas"], point.config["replicas"]) == (
        *(48, 2, 1),
    )
    assert point.config["base_lr"] == pytest.approx(0.02)  # linear, of the global batch


def test_as_many_replicas_on_other_workers_are_refused():
    with pytest.raises(UserError, match="1 worker with 4 replicas and 2 workers with 2 replicas"):
        placements([1, 2], [2, 4])
    assert [place.total for place in placements([1, 2, 4], [2])] == [2, 4, 8]


def test_scaling_compares_workers(here):
    experiment = scaling()
    assert [(p.axes["mode"], p.workers) for p in experiment.points()] == [
        (mode, workers) for mode in ("weak", "strong") for workers in (1, 2)
    ]
    code, out = run(FakeRuns(), experiment, output="out")
    assert code == 0
    assert "(workers 1,2; batch_size 8" in out
    assert "2 of 2 workers" in out
    summary = json.loads((here / "out" / "summary.json").read_text())
    one, two = (point for point in summary["points"] if point["mode"] == "weak")
    assert (one["workers"], two["workers"]) == (1, 2)
    assert (here / "out" / "scaling.png").exists()


def test_tables_name_the_workers(here):
    _, out = run(FakeRuns(), throughput(workers=[2]), output="out")
    assert "workers 2; batch_sizes 8,16" in out
    assert "4 of 2 workers" in out
    assert "workers" not in run(FakeRuns(), throughput(), output="other")[1]
    found = {one.facts.split(", global")[0] for one in find_results(find_sources(["out"]))}
    shared = "4 replicas of 2 workers (logical CPUs, shared cores)"
    assert found == {"2 replicas of 2 workers", shared}


def test_workers_that_the_machine_has_no_share_for_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    check_shares([1, 3])
    with pytest.raises(UserError, match="2 workers cannot share 3 GPUs evenly"):
        check_shares([1, 2])
    with pytest.raises(UserError, match="workers has to be from 1 to 1024, received 2000"):
        check_experiment(throughput(workers=[2000], batch_sizes=[1]))


# What the workers of a point run in place of a training.
FAKE_WORKER = """
import os, signal, subprocess, sys
rank = int(os.environ["KDIST_RANK"])
assert os.environ["KDIST_WORLD_SIZE"] == "2"
"""


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Runs a point whose workers are the given Python code."""
    (tmp_path / "point").mkdir()
    start = "import kdist.study.sweep_process as w; w._PROGRAM = ('-m', 'fake_worker'); w.main()"

    def command(folder):
        return [sys.executable, "-c", start, str(folder / "order.json")]

    monkeypatch.setattr(module, "command", command)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def point(code):
        (tmp_path / "fake_worker.py").write_text(FAKE_WORKER + textwrap.dedent(code))
        axes = {"batch_size": 8, "replicas": 2, "workers": 2}
        made = Point(name="b8", config={"batch_size": 8}, axes=axes, group="batch 8")
        return run_point(made, tmp_path / "point", ThroughputSweep)

    return point


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("raise ValueError('the cause')", "ValueError: the cause (exit code 1)"),
        (
            "print('kdist: error: worker 1 has waited', file=sys.stderr, flush=True)\n"
            "        os.kill(os.getpid(), 9)",
            "worker 1 has waited (exit code 137)",
        ),
    ],
)
def test_a_point_fails_with_the_error_that_came_first(fake, cause, words):
    row = fake(f"""
        if rank == 0:
            signal.pause()
        {cause}
        """)
    assert (row["status"], row["error"], row["workers"]) == ("failed", words, 2)


def test_a_worker_that_a_signal_stopped_is_no_want_of_memory(fake, tmp_path):
    row = fake(f"""
        place = {str(tmp_path / "stopped")!r}
        if rank == 1:
            with open(f"{{place}}.part", "w") as file:
                file.write(str(os.getpid()))
            os.rename(file.name, place)
            os.kill(os.getpid(), signal.SIGSTOP)
        while not os.path.exists(place):
            pass
        stat = f"/proc/{{open(place).read()}}/stat"
        while open(stat).read().rpartition(")")[2][1:2] != "T":
            pass
        raise ConnectionResetError("connection lost")
        """)
    words = "worker 1 stood still, stopped by a signal, and was killed (exit code 137)"
    assert (row["status"], row["error"]) == ("failed", words)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_the_sweep_ends_all_workers_and_what_they_started(fake, tmp_path, number):
    code = f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        place = {str(tmp_path)!r} + "/started"
        with open(f"{{place}}.part{{rank}}", "w") as file:
            file.write(f"{{os.getpid()}} {{child.pid}}")
        os.rename(file.name, f"{{place}}{{rank}}")
        if rank == 1:
            while not os.path.exists(f"{{place}}0"):
                pass
            os.kill({os.getpid()}, {int(number)})
        signal.pause()
        """
    with raise_signals(), pytest.raises(KeyboardInterrupt) as raised:
        fake(code)
    assert signal_of(raised.value) == number
    started = [tmp_path / f"started{rank}" for rank in range(2)]
    pids = [int(pid) for file in started for pid in file.read_text().split()]
    assert len(pids) == 4
    assert not [pid for pid in pids if _is_running(pid)]


def _is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_train_the_model_of_as_many_replicas(tmp_path):
    """Of the real workers, at the end of a point of an accuracy sweep."""
    (point,) = accuracy(workers=[2], train={**TINY, "save_model": True, "epochs": 2}).points()
    (tmp_path / "point").mkdir()
    row = run_point(point, tmp_path / "point", AccuracySweep)
    assert row["status"] == "done", row["error"]
    assert (row["workers"], row["replicas"], row["global_batch"], row["epochs"]) == (2, 2, 48, 2)
    config = TrainConfig(**{**point.config, "replicas": 2, "run_dir": str(tmp_path / "alone")})
    alone = train(config, verbose=0, announce=lambda _: None)
    assert row["val_accuracy"] == pytest.approx(alone.val_accuracy, abs=1e-6)
    runs = (tmp_path / "point" / "run", tmp_path / "alone")
    models = [keras.models.load_model(folder / "model.keras") for folder in runs]
    for got, expected in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    output = (tmp_path / "point" / "output.log").read_text()
    assert all(line.startswith("[0] ") for line in output.splitlines()), output
