import json
import math
import os
import signal
import sys
import types
from contextlib import closing

import pytest
from kdist.charts.statistics import row_to_target
from kdist.checkpoint.store import CheckpointStore
from kdist.errors import RefusedCheckpointsError, UserError
from kdist.launch.child import judge
from kdist.runs.record import read_run
from kdist.signals import ENDING, raise_signals, signal_of
from kdist.study import sweep_process as worker
from kdist.study.sweep_experiment import Point
from kdist.study.sweep_kinds import TIMED_RUN, AccuracySweep, ScalingSweep, ThroughputSweep
from kdist.study.sweep_process import can_be_resumed, measure, run_point
from report_folders import write_run

AXES = {"batch_size": 8, "replicas": 1}
POINT = Point(name="b8", config={"batch_size": 8}, axes=AXES, group="batch 8")


def run_folder(run, *, images=512, **options):
    """A run folder of three epochs, trained on so many images."""
    options = {"rates": (100.0, 200.0, 300.0), "patience": 2, "batch_size": 8} | options
    write_run(run, (0.1, 0.7, 0.8), **options)
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"training_images": images}))


def test_a_row_is_read_from_the_run_folder(tmp_path):
    run_folder(tmp_path / "run", images=20, target_accuracy=0.65)
    row = measure(read_run(tmp_path / "run"))
    assert (row["images_per_sec"], row["images_per_sec_low"], row["images_per_sec_high"]) == (
        *(250, 200, 300),  # of the epochs after the first
    )
    assert row["images_per_step"] == pytest.approx(20 / 3)
    # The first of the two epochs in a row that patience asks for.
    assert (row["epochs_to_target"], row["seconds_to_target"]) == (2, 20)
    assert (row["epochs"], row["seconds"]) == (3, 30)
    assert (row["val_accuracy"], row["reached_target"]) == (0.8, True)


def test_a_run_that_never_reached_its_target(tmp_path):
    run_folder(tmp_path / "run", target_accuracy=0.75)  # beaten once, not twice
    row = measure(read_run(tmp_path / "run"))
    assert (row["reached_target"], row["epochs_to_target"], row["seconds_to_target"]) == (
        *(False, None, None),
    )
    run_folder(tmp_path / "timed", validate=False)
    assert measure(read_run(tmp_path / "timed"))["reached_target"] is None


def test_the_first_epoch_has_no_speed(tmp_path):
    write_run(tmp_path / "run", (0.5,))
    assert measure(read_run(tmp_path / "run"))["images_per_sec"] is None


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Runs a point whose process is the given Python code."""

    def run(code, *, point=POINT, experiment=ThroughputSweep):
        monkeypatch.setattr(
            "kdist.study.sweep_process.command", lambda folder: [sys.executable, "-c", code]
        )
        return run_point(point, tmp_path, experiment)

    return run


def test_a_process_that_fails_leaves_a_row_with_its_error(process, tmp_path):
    row = process("import sys; print('said'); sys.exit('ValueError: no')")
    assert (row["status"], row["error"]) == ("failed", "ValueError: no (exit code 1)")
    assert (row["name"], row["batch_size"], row["run_dir"]) == ("b8", 8, None)
    assert (tmp_path / "output.log").read_text() == "said\n"


def test_a_process_killed_for_its_memory(process):
    row = process("import os; os.kill(os.getpid(), 9)")
    assert row["error"] == "out of memory, most likely: its process was killed"


def test_a_process_that_leaves_no_run_or_half_of_one(process, tmp_path):
    assert "run folder cannot be read: not a run folder" in process("")["error"]
    run_folder(tmp_path / "run")
    (tmp_path / "run" / "history.csv").write_text("epoch,seconds\n")
    assert "run folder cannot be read: it has no epoch" in process("")["error"]
    (tmp_path / "run" / "summary.json").write_text("[]")
    assert "run folder cannot be read: summary.json" in process("")["error"]


@pytest.mark.parametrize(
    ("rates", "words"), [((1.0,), "it has no images_per_sec"), ((1.0, -1.0), "images_per_sec -1.0")]
)
def test_a_run_without_a_speed_has_failed(process, tmp_path, rates, words):
    write_run(tmp_path / "run", (0.5,) * len(rates), rates=rates)
    row = process("")
    assert (row["status"], row["images_per_sec"]) == ("failed", None)
    assert words in row["error"]


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
    accuracy = Point(name="b8", config={}, axes=AXES | {"lr_rule": "linear"}, group="batch 8")
    row = process("", point=accuracy, experiment=AccuracySweep)
    assert (row["status"], row["diverged"], row["reached_target"]) == ("done", True, False)
    assert (row["epochs"], row["seconds"]) == (epochs, 7.5)
    assert row_to_target(row, "epochs") == (math.inf, False)


def test_a_run_that_diverged_has_no_speed(process, tmp_path):
    diverging(tmp_path / "run", epochs=2)
    row = process("")
    assert row["status"] == "failed"
    assert row["error"] == "the loss was not finite: epoch 3, step 4"


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_to_the_sweep_ends_the_process(process, tmp_path, number):
    code = "import os, time; print(os.getpid(), flush=True); "
    code += f"os.kill({os.getpid()}, {int(number)}); time.sleep(600)"
    with raise_signals(), pytest.raises(KeyboardInterrupt) as raised:
        process(code)
    assert signal_of(raised.value) == number
    pid = int((tmp_path / "output.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_a_run_that_a_signal_cut_short_is_not_measured(tmp_path, monkeypatch, capsys, number):
    """As from a program that frees memory: to the run alone, not to its sweep."""
    result = types.SimpleNamespace(interrupted=number is not None, signal=number)
    monkeypatch.setattr("kdist.training.train_run.train", lambda *_, **__: result)
    order = tmp_path / "order.json"
    order.write_text('{"config": {}, "resume": false}')
    monkeypatch.setattr("sys.argv", ["worker", str(order)])
    if number is None:
        assert worker.main() is None
        return
    with pytest.raises(SystemExit) as end:
        worker.main()
    assert end.value.code == 143
    error = capsys.readouterr().err
    assert judge(143, error).line == "interrupted by SIGTERM (exit code 143)"


@pytest.mark.slow
def test_a_real_run(tmp_path):
    """Of the real worker, on the tiniest settings."""
    point = Point(
        name="b16",
        config={
            "dataset": "sample",
            "subset": 32,
            "depth": 10,
            "width": 1,
            "augment": False,
            "batch_size": 16,
            "replicas": 1,
            "epochs": 2,
            **TIMED_RUN,
        },
        axes={"batch_size": 16, "replicas": 1, "mode": "weak"},
        group="",
    )
    row = run_point(point, tmp_path, ScalingSweep)
    assert row["status"] == "done", row["error"]
    assert (row["global_batch"], row["epochs"], row["kind"]) == (16, 2, "scaling")
    assert row["images_per_sec"] > 0
    assert row["reached_target"] is None
    assert row["run_dir"] == f"points/{tmp_path.name}/run"
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "history.csv", "summary.json"}


SAVED = Point(name="b8", config={"checkpoint_every": 9, "width": 2}, axes=AXES, group="batch 8")


def cut_short(folder, **config):
    """A point whose process was killed behind its first checkpoint."""
    order = {"config": {**SAVED.config, "run_dir": str(folder / "run"), **config}}
    (folder / "order.json").write_text(json.dumps(order))
    with closing(CheckpointStore(folder / "run" / "checkpoints")) as store:
        store.commit(epoch=1, batch=2, arrays={}, state={})


def test_a_point_that_was_cut_short_is_resumed_and_its_checkpoints_removed(process, tmp_path):
    assert not can_be_resumed(tmp_path, SAVED.config)
    run_folder(tmp_path / "run")
    cut_short(tmp_path, width=3)
    assert not can_be_resumed(tmp_path, SAVED.config)  # of other settings
    cut_short(tmp_path)
    assert not can_be_resumed(tmp_path, {**SAVED.config, "checkpoint_every": None})
    assert can_be_resumed(tmp_path, SAVED.config)
    order = str(tmp_path / "order.json")
    row = process(f"assert '\"resume\": true' in open({order!r}).read()", point=SAVED)
    assert row["status"] == "done", row
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_point_that_cannot_be_resumed_after_all_is_begun_anew(process, tmp_path):
    cut_short(tmp_path)
    (tmp_path / "errors.log").write_text("of the first process\n")
    run = str(tmp_path / "run")
    code = f"import os, sys; from kdist.launch.child import answer; old = os.path.exists({run!r})"
    code += "; answer(mistake='damaged', refused=True) if old else None"
    code += "; sys.exit('damaged' if old else 'new')"
    assert process(code, point=SAVED)["error"].startswith("new")
    assert '"resume": false' in (tmp_path / "order.json").read_text()
    log = (tmp_path / "errors.log").read_text()
    assert log == "of the first process\ndamaged\nnew\n"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("sys.exit('CUDA_ERROR: the device is busy')", "CUDA_ERROR: the device is busy (exit"),
        ("print('data is missing', file=sys.stderr); sys.exit(2)", "data is missing (exit code 2"),
        ("os.kill(os.getpid(), 9)", "out of memory, most likely"),
        ("print('interrupted', file=sys.stderr); sys.exit(143)", "interrupted (exit code 143)"),
    ],
)
def test_a_resumed_point_that_fails_keeps_its_checkpoints(process, tmp_path, end, error):
    cut_short(tmp_path)
    row = process(f"import os, sys; {end}", point=SAVED)
    assert (row["status"], row["error"][: len(error)]) == ("failed", error)
    assert can_be_resumed(tmp_path, SAVED.config)


@pytest.mark.parametrize(
    "words", ["[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"]
)
def test_a_full_disk_keeps_the_checkpoints_of_a_resumed_point(process, tmp_path, words):
    cut_short(tmp_path)
    with pytest.raises(OSError, match="No space left on device"):
        code = f"from kdist.launch.child import answer; answer(mistake='{words}', refused=True)"
        process(f"import sys; {code}; sys.exit('OSError: {words}')", point=SAVED)
    assert can_be_resumed(tmp_path, SAVED.config)


def test_the_worker_tells_a_refusal_to_resume_from_other_mistakes(tmp_path, monkeypatch, capsys):
    def answers_to(error):
        def fail(*_, **__):
            raise error

        told = {}
        monkeypatch.setattr("kdist.training.train_run.train", fail)
        monkeypatch.setattr(worker, "answer", lambda **values: told.update(values))
        with pytest.raises(SystemExit) as end:
            worker.main()
        assert end.value.code == 2
        assert capsys.readouterr().err == "why\n"
        return told

    order = tmp_path / "order.json"
    order.write_text('{"config": {}, "resume": true}')
    monkeypatch.setattr("sys.argv", ["worker", str(order)])
    assert answers_to(RefusedCheckpointsError("why")) == {"mistake": "why", "refused": True}
    assert answers_to(UserError("why")) == {"mistake": "why", "refused": False}
