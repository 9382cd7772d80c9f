"""The runner: several trials at once, their records, and signals."""

import errno
import io
import signal
from pathlib import Path

import pytest
from fake_runs import FakeProcess
from kdist.processes.child import Resources
from kdist.signals import Interrupted
from kdist.study.run_trials import Outcome, TrialRunner
from kdist.study.study_folder import StudyFolder
from kdist.study.trial import Trial
from report_folders import write_run
from rich.console import Console


class Trials:
    """A study of `names`, of which no more than `at_once` may have begun and not ended."""

    def __init__(self, names, at_once=9):
        self.left, self.begun, self.ended, self.at_once = list(names), 0, [], at_once
        self.total = len(self.left)

    def next_trial(self):
        if not self.left or self.begun - len(self.ended) >= self.at_once:
            return None
        self.begun += 1
        name = self.left.pop(0)
        error = "cannot be run" if name.startswith("bad") else ""
        return Trial(name=name, config={}, columns={"name": name}, error=error)

    def read_result(self, trial, run):
        return {"best": run.best[0]}

    def describe_row(self, row):
        return row["status"]

    def end_trial(self, trial, row):
        self.ended.append((trial.name, row["status"]))


class Process(FakeProcess):
    """A process that ends when it is asked `polls` times; it notes what is done to it."""

    def __init__(self, trial, polls=0, *, saves=False, hangs=False, error=""):
        super().__init__(trial, error)
        self.polls, self.saves, self.hangs, self.done = polls, saves, hangs, []

    @property
    def has_ended(self):
        self.polls -= 1
        return self.polls < 0

    def ask_to_end(self):
        self.done.append("asked")
        return self.saves

    def wait(self, seconds):
        self.done.append("waited")
        if self.hangs:
            raise TimeoutError

    def kill(self):
        self.done.append("killed")


class Starts:
    """Starts processes by the names of trials, and notes their shares."""

    def __init__(self, **made):
        self.made, self.processes, self.shares = made, {}, {}

    def __call__(self, trial, folder, share):
        options = self.made.get(trial.name, {})
        if not options.get("error"):
            write_run(folder / "run", (0.5,))
        self.shares[trial.name] = share
        self.processes[trial.name] = process = Process(trial, **options)
        return process


ALL = (Resources(),)
SHARES = (Resources(gpus=("0",)), Resources(gpus=("1",)))


@pytest.fixture
def drive(tmp_path, monkeypatch):
    """Runs a study in a folder; a pause between polls is none."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def run(study, starts, shares=ALL):
        console = Console(file=io.StringIO(), width=200)
        folder = StudyFolder(tmp_path, "trial")
        runner = TrialRunner(study, folder, [], console, shares=shares, start=starts)
        return runner.run(), folder, console.file.getvalue()

    return run


def test_trials_at_once_have_shares_of_their_own(drive):
    starts = Starts(a={"polls": 5}, b={"polls": 1}, c={"polls": 1})
    study = Trials("abcd")
    outcome, folder, _ = drive(study, starts, SHARES)
    assert [row["name"] for row in outcome.rows] == ["b", "c", "d", "a"]
    assert outcome.rows == folder.read_rows()
    assert [starts.shares[name].gpus for name in "abcd"] == [("0",), ("1",), ("1",), ("1",)]
    assert outcome.exit_code == 0


def test_a_study_may_wait_for_a_trial_before_it_names_the_next(drive):
    starts = Starts()
    outcome, *_ = drive(Trials("abc", at_once=1), starts, SHARES)
    assert {starts.shares[name].gpus for name in "abc"} == {("0",), ("1",)}
    assert [row["name"] for row in outcome.rows] == ["a", "b", "c"]


def test_failed_trials_are_recorded(drive):
    study = Trials(["a", "bad", "c"])
    outcome, folder, out = drive(study, Starts(a={"error": "ValueError: no"}))
    assert study.ended == [("a", "failed"), ("bad", "failed"), ("c", "done")]
    rows = {row["name"]: row for row in outcome.rows}
    assert (rows["a"]["error"], rows["bad"]["error"]) == ("ValueError: no", "cannot be run")
    assert (rows["c"]["best"], rows["c"]["run_dir"]) == (0.5, "trials/c/run")
    assert "bad: failed (" in out
    assert (folder.path / "trials.csv").read_text().splitlines()[0].startswith("name,status")


def test_a_process_that_leaves_no_run_has_failed(drive):
    outcome, *_ = drive(Trials("a"), lambda trial, folder, share: Process(trial))
    assert outcome.rows[0]["error"].startswith("the run cannot be used: not a run folder")


@pytest.mark.parametrize("hangs", [False, True])
def test_after_a_signal_trials_are_saved_and_no_process_is_left(drive, hangs):
    starts = Starts(a={"polls": 9, "saves": True, "hangs": hangs}, b={"polls": 9})
    study, names = Trials("abc"), []

    def next_trial():
        if len(names) == 2:
            raise Interrupted(signal.SIGTERM)
        names.append("")
        return Trials.next_trial(study)

    study.next_trial = next_trial
    outcome, folder, out = drive(study, starts, (*SHARES, Resources()))
    assert (outcome.signal, outcome.exit_code) == (signal.SIGTERM, 143)
    assert starts.processes["a"].done == ["asked", "waited", "killed"]
    assert starts.processes["b"].done == ["asked", "killed"]
    assert "Waiting for 1 trial to save; press Ctrl-C again" in out
    assert folder.read_rows() == []


def test_a_second_signal_kills_at_once(drive):
    starts = Starts(a={"polls": 9, "saves": True})

    def begin(trial, folder, share):
        process = starts(trial, folder, share)
        process.wait = lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt)
        return process

    class Stopped(Trials):
        def next_trial(self):
            if self.begun:
                raise KeyboardInterrupt
            return super().next_trial()

    outcome, *_ = drive(Stopped("ab"), begin, SHARES)
    assert outcome.exit_code == 130
    assert starts.processes["a"].done == ["asked", "killed"]


def test_a_full_disk_stops_the_study(drive):
    starts = Starts(b={"polls": 9})

    def begin(trial, folder, share):
        process = starts(trial, folder, share)
        if trial.name == "a":
            process.find_error = lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
        return process

    outcome, *_ = drive(Trials("abc"), begin, SHARES)
    assert outcome.stop_reason.startswith("full")
    assert (outcome.rows, outcome.exit_code) == ([], 1)
    assert starts.processes["a"].done == ["killed"]
    assert starts.processes["b"].done == ["asked", "killed"]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(folder=Path(), rows=[{"status": "done"}, {"status": "failed"}]), 0),
        (Outcome(folder=Path(), rows=[{"status": "failed"}]), 1),
        (Outcome(folder=Path(), rows=[{"status": "done"}], stop_reason="full"), 1),
        (Outcome(folder=Path(), rows=[], signal=signal.SIGHUP), 129),
    ],
)
def test_exit_codes(outcome, code):
    assert outcome.exit_code == code
