import json
import os
import signal
import sys
from pathlib import Path

import pytest
from interrupting_model import interrupting_model
from kdist.errors import UserError
from kdist.signals import ENDING, raise_signals, signal_of
from kdist.study import search_processes as parallel
from kdist.study import search_run as worker
from kdist.study.folder import StudyFolder
from kdist.study.search_processes import read_role, role_variables, with_replicas
from kdist.study.search_settings import Search
from kdist.training.config import TrainConfig


@pytest.mark.parametrize(
    ("gpus", "workers", "replicas", "of_a_trial"),
    [
        ("-1", 2, None, 1),
        ("-1", 2, 3, 3),
        ("0,1,2,3", 2, None, 2),
        ("0,1,2,3", 4, None, 1),
        ("0,1,2,3", 1, None, 4),
        ("0,1,2,3", 3, 1, 1),  # one is left
    ],
)
def test_a_trial_has_a_replica_on_each_gpu_of_its_share(
    monkeypatch, gpus, workers, replicas, of_a_trial
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    search = with_replicas(Search(workers=workers, config=TrainConfig(replicas=replicas)))
    assert search == Search(workers=workers, config=TrainConfig(replicas=of_a_trial))
    shares = parallel.SearchProcesses(search, StudyFolder("nosuch"), print).shares.values()
    has_gpus = gpus != "-1"
    assert [len(share.gpus or ()) for share in shares] == [of_a_trial * has_gpus] * workers
    used = [gpu for share in shares for gpu in share.gpus or ()]
    assert used == gpus.split(",")[: len(used)]


def test_without_several_trials_at_once_the_replicas_are_those_that_were_asked_for():
    assert with_replicas(Search()) == Search()


@pytest.mark.parametrize(
    ("workers", "replicas", "words"),
    [
        (3, None, "3 workers cannot share 4 GPUs evenly"),
        (2, 3, "received 2 workers with 3 replicas each, but 4 GPUs are visible"),
    ],
)
def test_gpus_have_to_suffice(monkeypatch, tmp_path, workers, replicas, words):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    config = TrainConfig(replicas=replicas)
    with pytest.raises(UserError, match=words):
        worker.tune(Search(workers=workers, config=config, output=str(tmp_path / "search")))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (role_variables("chief", ip="127.0.0.1", port=4000), ("chief", True, False)),
        (role_variables("worker0", ip="127.0.0.1", port=4000), ("worker0", False, True)),
        ({"KERASTUNER_TUNER_ID": "worker0"}, (None, False, False)),
    ],
)
def test_a_process_reads_the_role_that_it_was_given(variables, expected):
    role = read_role(variables)
    assert (role.tuner_id, role.is_chief, role.is_worker) == expected


@pytest.mark.parametrize("missing", ["KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_PORT"])
def test_the_variables_go_together(missing):
    variables = role_variables("chief", ip="127.0.0.1", port=4000)
    del variables[missing]
    with pytest.raises(UserError, match=f"without {missing}: set it too"):
        read_role(variables)


# Plays chief and workers without TensorFlow: what each does stands in its environment.
CHILD = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
name = os.environ["KERASTUNER_TUNER_ID"]
with open(folder / "notes", "a") as notes:
    keys = "CUDA_VISIBLE_DEVICES KERASTUNER_ORACLE_IP KDIST_TUNE_ENDED_BY".split()
    print(json.dumps([name, *map(os.environ.get, keys)]), file=notes)
marker = folder / "trials" / f"{name}.running"
plan = os.environ[f"PLAN_{name}"]
other = os.environ.get("PLAN_worker1", "").startswith(("save", "hang"))
if plan == "die in a trial" and "KDIST_TUNE_ENDED_BY" not in os.environ:
    marker.write_text("7")
    sys.exit(9)
if plan.startswith("exit"):
    sys.exit(int(plan.split()[1]))
if plan == "end last":
    time.sleep(0.3)
if plan == "save":
    signal.signal(signal.SIGTERM, lambda *_: ((folder / "saved").touch(), sys.exit(143)))
    (folder / "ready").touch()
if plan.startswith("hang"):
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), int(plan.split()[1])))
    (folder / "ready").touch()
if plan.startswith("signal"):
    while other and not (folder / "ready").exists():
        time.sleep(0.01)
    (folder / f".{os.getpid()}.trial.json").touch()
    os.kill(os.getppid(), int(plan.split()[1]))
if plan.split()[0] in ("wait", "save", "hang", "signal"):
    while True:
        signal.pause()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function from what chief and workers do to what was noted and announced."""
    folder = StudyFolder(str(tmp_path))
    folder.trials.mkdir()
    monkeypatch.setattr(parallel, "command", lambda path: [sys.executable, "-c", CHILD, str(path)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    def started(**plans):
        for name, plan in plans.items():
            monkeypatch.setenv(f"PLAN_{name}", plan)
        lines = []
        search = Search(workers=len(plans) - 1, output=str(tmp_path))
        parallel.SearchProcesses(search, folder, lines.append).run()
        notes = (tmp_path / "notes").read_text().splitlines()
        return sorted(map(json.loads, notes), key=str), lines

    return started


def test_chief_and_workers_are_started_and_the_chief_is_stopped(run):
    notes, lines = run(chief="wait", worker0="exit 0", worker1="exit 0")
    assert [note[:3] for note in notes if note[0] != "chief"] == [
        ["worker0", "-1", "127.0.0.1"],
        ["worker1", "-1", "127.0.0.1"],
    ]
    assert lines == ["Trials at once: 2, replicas per trial: 1"]


def test_the_end_of_the_chief_ends_workers_that_came_too_late(run):
    run(chief="exit 0", worker0="wait")


def test_a_worker_that_dies_is_replaced_and_its_trial_fails(run):
    notes, lines = run(chief="wait", worker0="die in a trial")
    reasons = [note[3] for note in notes if note[0] == "worker0"]
    assert sorted(reasons, key=str) == ["7=its process ended with exit code 9", None]
    assert lines[1:] == ["worker0: trial 7: its process ended with exit code 9; starting another"]


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        ({"chief": "exit 3", "worker0": "wait"}, "the chief of the search ended with exit code 3"),
        ({"chief": "wait", "worker0": "exit 4"}, "every worker of the search ended, the last with"),
    ],
)
def test_a_search_that_cannot_go_on_is_told(run, plans, words):
    with pytest.raises(UserError, match=words):
        run(**plans)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_trial_that_lost_its_worker_is_not_forgotten(run, tmp_path, is_open):
    """Whose worker ended for another reason, such as a full disk; the others went on."""
    order = {"start_order": ["0", "1"], "end_order": ["1"] if is_open else ["1", "0"]}
    (tmp_path / "trials" / "oracle.json").write_text(json.dumps(order))
    plans = {"chief": "wait", "worker0": "exit 2", "worker1": "end last"}
    if not is_open:
        run(**plans)
        return
    with pytest.raises(UserError, match="a worker ended amid a trial, with exit code 2"):
        run(**plans)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_all_processes_and_leaves_no_part(run, tmp_path, number):
    with raise_signals(), pytest.raises(KeyboardInterrupt) as raised:
        run(chief="wait", worker0=f"signal {int(number)}", worker1="wait")
    assert signal_of(raised.value) == number
    assert not _children(os.getpid(), CHILD.encode())
    assert not list(tmp_path.rglob(".*"))


def test_workers_save_their_trials_before_they_are_killed(run, tmp_path):
    with raise_signals(), pytest.raises(KeyboardInterrupt):
        run(chief="wait", worker0=f"signal {int(signal.SIGTERM)}", worker1="save")
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize(("again", "grace"), [(signal.SIGINT, 600), (0, 0.5)])
def test_a_worker_that_does_not_end_is_killed(run, monkeypatch, again, grace):
    """At a second signal, or when its time is over."""
    monkeypatch.setattr(parallel, "_GRACE_SECONDS", grace)
    with raise_signals(), pytest.raises(KeyboardInterrupt):
        run(chief="wait", worker0=f"signal {int(signal.SIGTERM)}", worker1=f"hang {int(again)}")
    assert not _children(os.getpid(), CHILD.encode())


MODEL = """
import keras
import numpy as np

def build(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Choice("rate", [0.01, 0.02])), "mse")
    return model

def data():
    x = np.ones((16, 2), "float32")
    return (x, x[:, 0]), (x, x[:, 0])
"""


def test_a_users_mistake_is_a_line_of_the_process(tmp_path, monkeypatch):
    search = Search(model=str(tmp_path / "model.py:build"), output=str(tmp_path))
    monkeypatch.setattr("sys.argv", ["worker", str(tmp_path)])
    for name, value in role_variables("worker0", ip="127.0.0.1", port=4000).items():
        monkeypatch.setenv(name, value)
    folder = StudyFolder(str(tmp_path))
    folder.write_about(search.about)
    folder.trials.mkdir()
    marker = parallel.running_marker(folder.trials, "worker0")
    marker.touch()  # by which its trial would be taken for the cause
    with pytest.raises(SystemExit, match="worker0: there is no file .*model.py"):
        worker.main()
    assert not marker.exists()


@pytest.mark.slow
def test_real_processes(tmp_path, monkeypatch, capfd):
    """KerasTuner's own chief and a worker, each a process; more would take seconds each.

    The third trial is one of the others, promoted: the chief has kept its checkpoints.
    """
    from kdist.study.search_run import tune
    from kdist.study.search_trials import read_trials

    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    search = Search(
        model=str(tmp_path / "model.py:build"),
        objective="val_loss",
        tuner="hyperband",
        factor=2,
        max_trials=3,
        workers=1,
        output=str(tmp_path / "search"),
        config=TrainConfig(epochs=2, batch_size=16),
    )
    lines = []
    folder = tune(search, announce=lines.append)
    trials = read_trials(folder, search)
    assert [trial.status for trial in trials] == ["COMPLETED"] * 3
    rates = sorted(trial.values["rate"] for trial in trials[:2])
    assert rates == [pytest.approx(0.01), pytest.approx(0.02)]
    assert [trial.metrics["epochs"] for trial in trials] == [1, 1, 2]
    assert "Trained from the first epoch" not in capfd.readouterr().out
    assert list(folder.trials.rglob("checkpoints")) == []
    assert not list(folder.trials.glob("*.running"))
    assert sorted(path.name for path in folder.trials.glob("*.json")) == [
        "chief.json",
        "oracle.json",
        "worker0.json",
    ]
    again = []
    tune(search, announce=again.append)  # is finished, and only told
    *shown, last = again
    assert shown == lines[-len(shown) :]
    assert "is finished: pass a larger --max-trials" in last
    assert lines[0] == "Trials at once: 1, replicas per trial: 1"
    assert not _children(os.getpid())


@pytest.mark.slow
def test_a_real_worker_saves_its_first_trial(tmp_path, monkeypatch, capfd):
    from kdist.checkpoint.store import checkpoint_files
    from kdist.study.search_run import tune
    from kdist.study.search_trials import read_trials

    (tmp_path / "model.py").write_text(
        interrupting_model("os.kill(os.getppid(), signal.SIGTERM); time.sleep(3)")
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    search = Search(
        model=str(tmp_path / "model.py:build"),
        objective="loss",
        max_trials=1,
        workers=1,
        output=str(tmp_path / "search"),
        config=TrainConfig(epochs=2),
    )
    lines = []
    (tmp_path / "signals").touch()
    with raise_signals(), pytest.raises(KeyboardInterrupt):
        tune(search, announce=lines.append)
    assert not _children(os.getpid())
    (saved,) = (tmp_path / "search" / "trials").glob("trial_*/checkpoints/execution-0")
    newest = checkpoint_files(saved)[0]
    assert (newest.epoch, newest.batch > 0) == (0, True)
    folder = tune(search, announce=lines.append)
    (trial,) = read_trials(folder, search)
    assert (trial.status, trial.metrics["epochs"]) == ("COMPLETED", 2)
    said = capfd.readouterr()
    assert "Trained from the first epoch" not in said.out
    assert "Traceback" not in said.err


def _children(pid, words=b"kdist.study.search_run"):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if path.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append((path.parent / "cmdline").read_bytes())
        except OSError:  # it has ended meanwhile
            continue
    return [line for line in found if words in line]
