import csv
import dataclasses
import json
import math
import os
import shutil
import signal
import sys
import types
from contextlib import closing

import pytest
from kdist.checkpoint.checkpoint_folder import CheckpointStore
from kdist.errors import TrainingError, UserError
from kdist.processes.process_exit import explain_exit
from kdist.signals import ENDING_SIGNALS, raise_signals
from kdist.study import trial_process
from kdist.study.experiment import POINT_COLUMNS
from kdist.study.run_trials import TrialRunner
from kdist.study.study_folder import StudyFolder
from kdist.study.sweep_kinds import AccuracySweep, ThroughputSweep, time_to_target
from kdist.study.sweep_run import SweepPoints
from kdist.study.trial import Trial, read_measurements
from kdist.study.trial_process import TrialProcess, can_be_resumed, make_request
from kdist.training.config import SearchTrial
from kdist.training.run_record import read_run
from report_folders import write_run
from rich.console import Console

AXES = {"name": "b8", "batch_size": 8, "replicas": 1, "global_batch": 8}
POINT = Trial(name="b8", config={"batch_size": 8}, columns=dict.fromkeys(POINT_COLUMNS) | AXES)


def run_folder(run, *, images=512, **options):
    """A run folder of three epochs, trained on so many images."""
    options = {"rates": (100.0, 200.0, 300.0), "patience": 2, "batch_size": 8} | options
    write_run(run, (0.1, 0.7, 0.8), **options)
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"training_images": images}))


def test_a_row_is_read_from_the_run_folder(tmp_path):
    run_folder(tmp_path / "run", images=20, target_accuracy=0.65)
    row = read_measurements(read_run(tmp_path / "run"))
    assert row["images_per_sec"] == 250  # the median of the epochs after the first
    assert row["images_per_step"] == pytest.approx(20 / 3)
    # The first of the two epochs in a row that patience asks for.
    assert (row["epochs_to_target"], row["seconds_to_target"]) == (2, 20)
    assert (row["epochs"], row["seconds"]) == (3, 30)
    assert (row["val_accuracy"], row["reached_target"]) == (0.8, True)


def test_a_run_that_never_reached_its_target(tmp_path):
    run_folder(tmp_path / "run", target_accuracy=0.75)  # beaten once, not twice
    row = read_measurements(read_run(tmp_path / "run"))
    assert (row["reached_target"], row["epochs_to_target"], row["seconds_to_target"]) == (
        *(False, None, None),
    )
    run_folder(tmp_path / "timed", validate=False)
    assert read_measurements(read_run(tmp_path / "timed"))["reached_target"] is None


class OnePoint(SweepPoints):
    """A sweep of one given point."""

    def __init__(self, point, experiment, folder):
        self.experiment, self._folder, self._points = experiment, folder, [point]
        self.points_to_run, self._rows, self.total = [point], {}, 1


@pytest.fixture
def place(tmp_path):
    """The folder of the point of `process`."""
    return tmp_path / "points" / "b8"


@pytest.fixture
def process(monkeypatch, tmp_path, place):
    """Runs a point whose process is the given Python code, and returns its row."""
    experiments = {
        "throughput": ThroughputSweep(train={}, batch_sizes=[8]),
        "accuracy": AccuracySweep(train={}),
    }

    def run(code, *, point=POINT, kind="throughput"):
        command = [sys.executable, "-c", code]
        monkeypatch.setattr("kdist.study.trial_process.make_command", lambda order: command)
        folder = StudyFolder(tmp_path)
        study = OnePoint(point, experiments[kind], folder)
        outcome = TrialRunner(study, folder, [], Console(quiet=True)).run()
        if outcome.signal is not None or outcome.stop_reason:
            return outcome
        (row,) = outcome.rows
        return row

    return run


def copy_run(folder):
    """Code of a process that leaves a copy of `folder`/run as its run folder."""
    target = folder / "points" / "b8" / "run"
    return f"import shutil; shutil.copytree({str(folder / 'run')!r}, {str(target)!r})"


def test_a_process_that_fails_leaves_a_row_with_its_error(process, place):
    row = process("import sys; print('said'); sys.exit('ValueError: no')")
    assert (row["status"], row["error"]) == ("failed", "ValueError: no (exit code 1)")
    assert (row["name"], row["batch_size"], row["run_dir"]) == ("b8", 8, None)
    assert (place / "output.log").read_text() == "said\n"


def test_a_process_killed_for_its_memory(process):
    row = process("import os; os.kill(os.getpid(), 9)")
    assert row["error"] == "most likely out of memory: the process was killed"


def test_a_process_that_leaves_no_run_or_half_of_one(process, tmp_path):
    assert "the run cannot be used: not a run folder" in process("")["error"]
    run_folder(tmp_path / "run")
    (tmp_path / "run" / "history.csv").write_text("epoch,seconds\n")
    assert "the run has no finished epoch" in process(copy_run(tmp_path))["error"]
    (tmp_path / "run" / "summary.json").write_text("{")
    assert "the run cannot be used: summary.json" in process(copy_run(tmp_path))["error"]


def test_a_run_without_a_speed_has_failed(process, tmp_path):
    write_run(tmp_path / "run", (0.5,), rates=(1.0,))
    row = process(copy_run(tmp_path))
    assert (row["status"], row["images_per_sec"]) == ("failed", None)
    assert "the run has no images_per_sec" in row["error"]


def diverging(run, *, epochs):
    """A run folder whose loss was not finite, in its last epoch."""
    write_run(run, (0.5,) * epochs)
    if not epochs:
        (run / "history.csv").write_text("epoch,seconds\n")
    summary = json.loads((run / "summary.json").read_text())
    lost = {"diverged": {"epoch": epochs + 1, "step": 4}, "training_images": 512, "seconds": 7.5}
    (run / "summary.json").write_text(json.dumps(summary | lost))


@pytest.mark.parametrize("epochs", [0, 2])
def test_a_run_that_diverged_never_reached_its_target(process, tmp_path, epochs):
    diverging(tmp_path / "run", epochs=epochs)
    columns = POINT.columns | {"lr_rule": "linear"}
    point = Trial(name="b8", config={}, columns=columns)
    row = process(copy_run(tmp_path), point=point, kind="accuracy")
    assert (row["status"], row["diverged"], row["reached_target"]) == ("done", True, False)
    assert (row["epochs"], row["seconds"]) == (epochs, 7.5)
    assert time_to_target(row, "epochs") == math.inf


def test_a_run_that_diverged_has_no_speed(process, tmp_path):
    diverging(tmp_path / "run", epochs=2)
    row = process(copy_run(tmp_path))
    assert row["status"] == "failed"
    assert row["error"].endswith("the loss was not finite: epoch 3, step 4")


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_to_the_sweep_ends_the_process(process, place, number):
    code = "import os, time; print(os.getpid(), flush=True); "
    code += f"os.kill({os.getpid()}, {int(number)}); time.sleep(600)"
    with raise_signals():
        outcome = process(code)
    assert (outcome.signal, outcome.rows) == (number, [])
    pid = int((place / "output.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_saves_its_training_before_it_ends(process, place):
    """It is asked by SIGTERM, and leaves no part of a file."""
    code = "import os, signal, sys, time; open(f'.{os.getpid()}.part', 'w').close(); "
    code = f"import os; os.chdir({str(place)!r}); {code}"
    code += "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), os._exit(143)));"
    code += f"os.kill({os.getpid()}, signal.SIGTERM); time.sleep(600)"
    with raise_signals():
        outcome = process(code, point=SAVED)
    assert outcome.exit_code == 143
    assert (place / "output.log").read_text() == "saved\n"
    assert list(place.glob(".*.part")) == []


SAVED = Trial(name="b8", config={"checkpoint_every": 9, "width": 2}, columns=POINT.columns)


def cut_short(place, point=SAVED):
    """A point whose process was killed behind its first checkpoint."""
    (place / "run").mkdir(parents=True, exist_ok=True)
    (place / "request.json").write_text(json.dumps(make_request(point, place) | {"resume": False}))
    with closing(CheckpointStore(place / "run" / "checkpoints")) as store:
        store.commit(epoch=1, batch=2, arrays={}, state={})


def test_only_a_run_with_checkpoints_and_the_same_settings_is_resumed(tmp_path):
    order = make_request(SAVED, tmp_path)
    assert not can_be_resumed(tmp_path, order)
    cut_short(tmp_path)
    assert can_be_resumed(tmp_path, order)
    for config in ({**SAVED.config, "width": 3}, {**SAVED.config, "checkpoint_every": None}):
        other = make_request(dataclasses.replace(SAVED, config=config), tmp_path)
        assert not can_be_resumed(tmp_path, other)
        cut_short(tmp_path / "other", dataclasses.replace(SAVED, config=config))
    assert not can_be_resumed(tmp_path / "other", other)


def test_a_point_that_was_cut_short_is_resumed_and_its_checkpoints_removed(
    process, tmp_path, place
):
    run_folder(tmp_path / "run")
    shutil.copytree(tmp_path / "run", place / "run")
    cut_short(place)
    order = str(place / "request.json")
    row = process(f"assert '\"resume\": true' in open({order!r}).read()", point=SAVED)
    assert row["status"] == "done", row
    assert not (place / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("sys.exit('CUDA_ERROR: the device is busy')", "CUDA_ERROR: the device is busy (exit"),
        ("print('data is missing', file=sys.stderr); sys.exit(2)", "data is missing (exit code 2"),
        ("os.kill(os.getpid(), 9)", "most likely out of memory"),
        ("print('interrupted', file=sys.stderr); sys.exit(143)", "interrupted (exit code 143)"),
    ],
)
def test_a_resumed_point_that_fails_keeps_its_checkpoints(process, place, end, error):
    cut_short(place)
    (place / "errors.log").write_text("Error: of the first process\n")
    row = process(f"import os, sys; {end}", point=SAVED)
    assert (row["status"], row["error"][: len(error)]) == ("failed", error)
    assert can_be_resumed(place, make_request(SAVED, place))


# Inside of the process


@pytest.fixture
def order(tmp_path, monkeypatch):
    """The order of this process, to resume a run."""
    file = tmp_path / "request.json"
    (tmp_path / "run").mkdir()
    config = {"run_dir": str(tmp_path / "run")}
    file.write_text(json.dumps({"config": config, "search": None, "resume": True}))
    monkeypatch.setattr("sys.argv", ["trial_process", str(file)])
    return file


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_a_run_that_a_signal_cut_short_is_not_measured(order, monkeypatch, capsys, number):
    """As from a program that frees memory: to the run alone, not to its sweep."""
    result = types.SimpleNamespace(interrupted=number is not None, signal=number)
    monkeypatch.setattr("kdist.training.run.train", lambda *_, **__: result)
    if number is None:
        assert trial_process.main() is None
        return
    with pytest.raises(SystemExit) as end:
        trial_process.main()
    assert end.value.code == 143
    error = capsys.readouterr().err
    assert explain_exit(143, error).line == "interrupted by SIGTERM (exit code 143)"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [(UserError("why"), 2, {"mistake": "why"}), (TrainingError("why"), 1, {})],
)
def test_an_error_is_a_line_and_an_exit_code(order, monkeypatch, capsys, error, code, told):
    def fail(*_, **__):
        raise error

    answers = {}
    monkeypatch.setattr("kdist.training.run.train", fail)
    monkeypatch.setattr(trial_process, "send_answer", lambda **values: answers.update(values))
    with pytest.raises(SystemExit) as end:
        trial_process.main()
    assert (end.value.code, answers, capsys.readouterr().err) == (code, told, "why\n")


def tiny(name, epochs=None, parent=None):
    """A trial of the tiniest network, which pauses after so many of its two epochs."""
    return Trial(
        name=name,
        config={
            "dataset": "sample",
            "subset": 32,
            "depth": 10,
            "width": 1,
            "dropout": 0.1,
            "batch_size": 16,
            "replicas": 1,
            "epochs": 2,
            "save_model": False,
            "optimizer": "momentum",
            "schedule": "cosine",
            "checkpoint_every": 300.0,
            "base_lr": 0.05,
            "target_accuracy": 0.01,
            "patience": 1,
            "track": "tensorboard",
        },
        columns={},
        search=SearchTrial(
            epochs=epochs,
            has_target=False,
            tracked={
                "group": "group",
                "run_name": name,
                "hyperparameters": {"drawn_rate": 0.05},
            },
        ),
        parent=parent,
    )


@pytest.mark.slow
def test_a_trial_that_continues_another_ends_as_if_it_had_been_trained_at_once(tmp_path):
    """Real processes, whose target would end them if they had one."""
    whole, first = TrialProcess(tiny("whole"), tmp_path / "whole"), tiny("first", epochs=1)
    for trial in (first, tiny("second", epochs=2, parent="first")):
        process = TrialProcess(trial, tmp_path / trial.name)
        assert process.find_error() == ""
    assert whole.find_error() == ""

    def epochs(name):
        with (tmp_path / name / "run" / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        timed = ("seconds", "images_per_sec")
        return [{k: v for k, v in row.items() if k not in timed} for row in rows]

    assert epochs("second") == epochs("whole")
    assert epochs("first") == epochs("whole")[:1]
    assert len(epochs("whole")) == 2
    events = [*(tmp_path / "whole" / "run" / "tensorboard").rglob("*tfevents*")]
    assert any(b"drawn_rate" in file.read_bytes() for file in events)
