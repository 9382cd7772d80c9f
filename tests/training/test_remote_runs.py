"""Trainings in remote folders: killed, resumed, evaluated and reported."""

import csv
import functools
import re

import fsspec
import keras
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from kdist.errors import UserError
from kdist.report.write_report import write_report
from kdist.tools.evaluate import EvaluateOptions, evaluate, evaluator
from kdist.training import TrainConfig, model_and_data, resume_run, train
from kdist.training.restart import record_run_for_restart, restore_after_restart
from kdist.training.run_folder import RunFolder
from kdist.workers.tf_config import NOTES, RESTART_COUNT
from replicas import assert_equal
from small_network import At, KilledError, kill, small_model

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

ADDRESS = "memory://bucket/run"
SETTINGS = {
    "dataset": "sample",
    "subset": 96,
    "batch_size": 32,
    "replicas": 1,
    "epochs": 2,
    "momentum": 0.9,
    "checkpoint_every": 1e-9,  # after every step
    "keep": 2,
}


def make_kill():
    """Return a callback that ends the process in a step of the second epoch."""
    return At(2, 2, kill)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(model_and_data, "make_model", small_model)
    monkeypatch.setattr(evaluator, "make_model", small_model)
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def remote_names(root="/bucket/run"):
    return [path.removeprefix(f"{root}/") for path in fsspec.filesystem("memory").find(root)]


def begin(run_dir, *callbacks, **values):
    lines = []
    config = TrainConfig(**{**SETTINGS, "run_dir": str(run_dir), **values})
    return train(config, callbacks=callbacks, announce=lines.append, verbose=0), lines


def rows_of(text):
    rows = csv.DictReader(text.splitlines())
    times = ("seconds", "images_per_sec")
    return [{n: value for n, value in row.items() if n not in times} for row in rows]


def test_a_killed_run_continues_from_the_storage_alone(tmp_path, capsys):
    whole, _ = begin(tmp_path / "whole")
    with pytest.raises(KilledError):
        begin(ADDRESS, make_kill())
    names = remote_names()
    assert [name for name in names if "/" not in name] == [
        "config.json",
        "history.csv",
        "plan.json",
    ]
    assert len(names) == 5
    lines = []
    result = resume_run(ADDRESS, announce=lines.append, verbose=1)
    printed = capsys.readouterr().out
    # A save is left out while the one before is still written.
    pattern = rf"Resumed in epoch 2 after step [01] from {ADDRESS}/checkpoints/e000001-b"
    assert re.search(pattern, printed), printed
    assert f"{ADDRESS}/model.keras" in "\n".join(lines)
    assert "/kdist-" not in printed + "\n".join(lines)
    assert result.run_dir == ADDRESS
    assert_equal(result.model.get_weights(), whole.model.get_weights())
    storage = fsspec.filesystem("memory")
    expected = (tmp_path / "whole" / "history.csv").read_text()
    assert rows_of(storage.cat("/bucket/run/history.csv").decode()) == rows_of(expected)
    assert f'"run_dir": "{ADDRESS}"'.encode() in storage.cat("/bucket/run/summary.json")

    assert resume_run(ADDRESS, announce=lines.append) is None
    assert lines[-1].startswith(f"{ADDRESS} is finished after 2 epochs: nothing is left to train")
    with pytest.raises(UserError, match=f"{ADDRESS} was trained with batch_size=32"):
        resume_run(ADDRESS, {"batch_size": 8})
    with pytest.raises(UserError, match=f"the run folder {ADDRESS} is not empty"):
        begin(ADDRESS)
    assert resume_run(ADDRESS, {"epochs": 3}, announce=lines.append, verbose=0).epochs == 3


def test_evaluate_watch_and_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KilledError):
        begin(ADDRESS, make_kill())
    evaluate_run = functools.partial(evaluate, ADDRESS, announce=[].append)
    [newest] = evaluate_run(EvaluateOptions(replicas=1))
    assert newest.file.startswith("e000001-b000000001")
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            resume_run(ADDRESS, announce=[].append, verbose=0)

    found = evaluate_run(EvaluateOptions(replicas=1, watch=5), sleep=sleep)
    assert [one.epoch for one in found] == [1, 2, 2, 2, 2]
    assert (found[-1].file, waits) == ("model.keras", [5])
    page, skipped = write_report([ADDRESS])
    assert (page.resolve(), skipped) == (tmp_path / "report.html", [])
    text = page.read_text()
    assert "<h1>run</h1>" in text or ">run<" in text
    assert "/kdist-" not in text
    for call in (lambda: evaluate("memory://none"), lambda: write_report(["memory://none"])):
        with pytest.raises(UserError, match="memory://none"):
            call()
    with pytest.raises(UserError, match="cannot resume memory://none: not a run folder"):
        resume_run("memory://none")


def test_a_run_that_cannot_be_uploaded_at_its_end_stays_on_the_disk(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("Access Denied")

    class Refuse(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)

    with pytest.raises(
        UserError, match=f"cannot write to {ADDRESS}: Access Denied; the run is kept in"
    ):
        begin(ADDRESS, Refuse(), checkpoint_every=None, epochs=1)
    assert remote_names() == []


def test_a_run_that_fails_before_its_first_step_leaves_nothing(monkeypatch):
    class Fail(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise KilledError

    with pytest.raises(KilledError):
        begin(ADDRESS, Fail())
    assert remote_names() == []


def test_restarted_workers_find_the_run(tmp_path):
    environment = {NOTES: str(tmp_path), RESTART_COUNT: "0"}
    record_run_for_restart(RunFolder(ADDRESS), environment)
    again = environment | {RESTART_COUNT: "1"}
    assert restore_after_restart(again, {}, None) == ({"run_dir": ADDRESS}, None)
    with pytest.raises(KilledError):
        begin(ADDRESS, make_kill())
    assert restore_after_restart(again, {}, None) == ({"run_dir": ADDRESS}, ADDRESS)
    own, resume = restore_after_restart(again, {"epochs": 3}, None)
    assert resume_run(resume, own, announce=[].append, verbose=0).epochs == 3
