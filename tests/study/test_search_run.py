"""A search as a command runs it, without processes."""

import csv
import errno
import io
import json
import subprocess
import sys

import pytest
from fake_runs import FakeProcess
from kdist.cli import make_app
from kdist.errors import UserError
from kdist.report.find_records import read_study
from kdist.study.search_results import sort_trials
from kdist.study.search_run import tune
from kdist.study.search_settings import Search
from kdist.training.config import TrainConfig
from report_folders import write_run
from rich.console import Console

CONFIG = TrainConfig(dataset="sample", depth=10, width=1, epochs=2)


class FakeTrials:
    """Stands in for `TrialProcess`; `at` has exceptions and errors by the names of trials."""

    def __init__(self, **at):
        self.at, self.begun = at, []

    def __call__(self, trial, folder, share):
        self.begun.append(trial)
        what = self.at.get(trial.name.replace("-", "_"))
        if isinstance(what, BaseException):
            raise what
        if what is None:
            write_run(folder / "run", (0.1 * len(self.begun), 0.05))
        return FakeProcess(trial, what or "")

    @property
    def names(self):
        return [trial.name for trial in self.begun]


def run(start, width=80, **options):
    """Exit code and output of a search in `out`."""
    settings = {"max_trials": 3, "config": CONFIG, "output": "out"} | options
    console = Console(file=io.StringIO(), width=width)
    outcome = tune(Search(**settings), start=start, console=console)
    return outcome.exit_code, console.file.getvalue()


def test_a_range_that_keras_tuner_rejects_leaves_no_folder(here):
    space = {"wd": {"min": 0, "max": 1, "sampling": "log"}}
    with pytest.raises(UserError, match="the range of wd is invalid"):
        run(FakeTrials(), space=space)
    assert list(here.iterdir()) == []


def test_a_search_leaves_a_table_and_the_best_settings(here):
    start = FakeTrials(trial_1="ValueError: no")
    code, out = run(start)
    assert code == 0
    assert start.names == ["trial-0", "trial-1", "trial-2"]
    assert "Search folder: out\n" in out
    assert "trial-1: failed: ValueError: no (" in out
    assert "3 of 3 trials" in out
    assert "Failed: trial-1: ValueError: no" in out
    assert "Best trial: trial-2, val_accuracy 0.3\n" in out
    assert out.endswith("Best settings: kdist train --config out/best.json\n")
    table = out[out.index("Trials") : out.index("Best first")]
    assert max(map(len, table.splitlines())) <= 80
    rows = list(csv.DictReader((here / "out" / "trials.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    best = json.loads((here / "out" / "best.json").read_text())
    assert str(best["batch_size"]) == rows[2]["batch_size"]
    record = read_study(here / "out")
    ranked = sort_trials(record.rows, record.search)
    assert [row["name"] for row in ranked] == ["trial-2", "trial-0"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_the_same_command_resumes_a_search(here, end):
    first = FakeTrials(trial_1=end)
    code, out = run(first)
    assert code == (130 if isinstance(end, KeyboardInterrupt) else 1)
    word = "Interrupted" if isinstance(end, KeyboardInterrupt) else "Stopped: full."
    assert word in out
    assert out.endswith(
        ". The results of 1 trial are in out: run the same command again to resume.\n"
    )
    again = FakeTrials()
    code, out = run(again)
    assert code == 0
    assert "Resuming the search in out after 1 trial\n" in out
    assert again.names == ["trial-1", "trial-2"]
    assert again.begun[0] == first.begun[1]


def test_a_finished_search_shows_its_results_and_takes_more_trials(here):
    run(FakeTrials())
    start = FakeTrials()
    code, out = run(start, width=200)
    assert (code, start.names) == (0, [])
    assert "Best trial: trial-2" in out
    assert out.endswith(
        "The search in out is finished: pass a larger --max-trials to continue, or another --output"
        " for a new search\n"
    )
    assert run(start, max_trials=4)[0] == 0
    assert start.names == ["trial-3"]


def test_failures_in_a_row_stop_a_search(here):
    start = FakeTrials(trial_0="no", trial_1="ValueError: no")
    code, out = run(start, max_failures=2, width=300)
    assert (code, start.names) == (1, ["trial-0", "trial-1"])
    assert "No trial was completed.\n" in out
    assert "Stopped: 2 trials in a row failed, the last with 'ValueError: no'. The res" in out
    remedy = "fix the cause, and run the same command again to resume.\n"
    assert out.endswith(f" of 2 trials are in out: {remedy}")
    assert run(start, max_failures=2)[0] == 0


def test_other_settings_are_another_search(here):
    run(FakeTrials())
    with pytest.raises(UserError, match="another study: config.epochs is 2 in the folder and 3 in"):
        run(FakeTrials(), config=TrainConfig(dataset="sample", depth=10, width=1, epochs=3))


def test_nothing_is_written_before_the_data_are_there(here, monkeypatch):
    def fail(*_, **__):
        raise UserError("no data")

    monkeypatch.setattr("kdist.study.search_run.load_data", fail)
    with pytest.raises(UserError, match="no data"):
        run(FakeTrials())
    assert list(here.iterdir()) == []


def test_no_trial_that_beat_the_target_is_said(here):
    config = TrainConfig(dataset="sample", depth=10, width=1, epochs=2, time_budget=9)
    start = FakeTrials()
    code, out = run(start, objective="seconds_to_target", config=config, width=200)
    assert code == 0
    assert "No trial beat the target accuracy of 0.85; a trial that misses the target gets" in out
    assert start.begun[0].search.has_target


def test_the_command_has_the_exit_code_of_the_search(here, monkeypatch, capsys):
    start = FakeTrials(trial_0=KeyboardInterrupt())
    monkeypatch.setattr(
        "kdist.study.search_run.tune", lambda search: tune(search, start=start, console=Console())
    )
    command = ["tune", "--dataset", "sample", "--max-trials", "3", "--output", "out"]
    assert make_app()(command, exit_on_error=False) == 130
    assert "Interrupted. The results of 0 trials are in out" in capsys.readouterr().out
    start.at = {}
    assert make_app()(command, exit_on_error=False) == 0
    assert capsys.readouterr().out.endswith("Report: out/report.html\n")
    assert (here / "out" / "report.html").is_file()


def test_a_search_is_set_up_without_tensorflow():
    code = "import kdist.study.search_run, sys; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
