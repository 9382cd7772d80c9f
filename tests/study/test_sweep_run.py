"""A sweep: its points, its folder, and what a second command does there."""

import csv
import errno
import io
import json
import signal
import subprocess
import sys

import pytest
from fake_runs import MACHINE, FakeRuns, run, throughput
from kdist.checkpoint.folder_lock import FolderLock
from kdist.errors import UserError
from kdist.report.find_records import read_study
from kdist.signals import Interrupted, signal_of
from kdist.study.experiment import POINT_COLUMNS
from kdist.study.study_folder import StudyFolder
from kdist.study.sweep_run import sweep
from rich.console import Console

FIRST, SECOND, *_ = NAMES = [point.name for point in throughput().make_points()]


def only_folder(here):
    (folder,) = (here / "runs").iterdir()
    return folder


@pytest.fixture
def finished(here):
    """A finished sweep in `out`."""
    run(FakeRuns(), output="out")


def test_every_round_runs_all_points_the_second_backwards():
    assert [
        *("b8-r1-round1", "b16-r1-round1", "b8-r2-round1", "b16-r2-round1"),
        *("b16-r2-round2", "b8-r2-round2", "b16-r1-round2", "b8-r1-round2"),
    ] == NAMES


def test_a_sweep_leaves_rows_and_a_table(here, runs):
    code, out = run(runs)
    assert code == 0
    assert runs.names == NAMES
    folder = only_folder(here)
    rows = list(csv.DictReader((folder / "points.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == NAMES
    assert list(rows[0]) == list(POINT_COLUMNS)
    assert rows[0]["error"] == ""
    assert json.loads((folder / "points.json").read_text())[0]["batch_size"] == 8
    assert sorted(row["name"] for row in read_study(folder).rows) == sorted(NAMES)
    assert "108.0" in out  # milliseconds
    assert " 74 " in out
    assert f"{FIRST}: 74 images/s (0.0 seconds); 1 of 8 points" in out  # 8 images in 0.108 seconds
    assert "b8-r1-round2: 74 images/s (0.0 seconds); 8 of 8 points" in out


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Interrupted(signal.SIGTERM), SystemExit(9)])
def test_the_same_command_resumes_without_repeating_points(here, runs, end):
    """A signal, and a process that ends without a chance to tidy up."""
    runs.at[NAMES[3]] = end
    if isinstance(end, KeyboardInterrupt):
        code, out = run(runs)
        assert code == 128 + signal_of(end)
        assert "Interrupted. The results of 3 points are in runs/sweep-" in out
        assert " 74 " in out
    else:
        with pytest.raises(SystemExit):
            run(runs)
    again = FakeRuns()
    code, out = run(again)
    assert code == 0
    assert again.names == NAMES[3:]
    assert "Resuming the sweep in runs/sweep-" in out
    assert ", 5 points left\n" in out
    assert len(read_study(only_folder(here)).rows) == len(NAMES)


def test_other_settings_have_another_folder(here, runs):
    run(runs)
    run(runs, throughput(epochs=4))
    assert len(list((here / "runs").iterdir())) == 2
    with pytest.raises(UserError, match="cores is 2 in the folder and 4 on this machine"):
        run(runs, machine=MACHINE | {"cores": 4})


def test_a_finished_sweep_shows_its_results_again(here, runs):
    _, first = run(runs, output="out")
    assert runs.names == NAMES
    code, again = run(runs, output="out")
    assert code == 0
    assert runs.names == NAMES
    assert "Resuming the sweep in out, 0 points left\n" in again
    begin = "Replicas "
    assert again[again.index(begin) :] == first[first.index(begin) :]


def test_a_point_that_fails_is_recorded_and_run_by_the_next_command(here, runs):
    failed = {"error": "ValueError: no"}
    runs.at[SECOND] = failed
    code, out = run(runs, output="out")
    assert code == 0
    assert runs.names == NAMES
    assert f"Failed: {SECOND}: ValueError: no" in out
    rows = {row["name"]: row for row in read_study(here / "out").rows}
    assert (rows[SECOND]["status"], rows[SECOND]["error"]) == ("failed", "ValueError: no")
    assert out.endswith("Run the same command again to repeat the failed points.\n")
    again = FakeRuns()
    run(again, output="out")
    assert again.names == [SECOND]
    assert {row["status"] for row in read_study(here / "out").rows} == {"done"}


def test_a_full_disk_stops_the_sweep_and_leaves_nothing_half_written(here, runs, monkeypatch):
    def full(self, name, values):
        if name == "points.json" and len(values) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, values)

    write = StudyFolder.write_json
    with monkeypatch.context() as patch:
        patch.setattr(StudyFolder, "write_json", full)
        code, out = run(runs)
    assert code == 1
    assert "Stopped: No space left on device." in out
    assert "The results of 1 point are in" in out
    assert [row["name"] for row in read_study(only_folder(here)).rows] == [FIRST]
    assert not list(only_folder(here).rglob(".*.json"))
    again = FakeRuns()
    assert run(again)[0] == 0
    assert again.names == NAMES[1:]


@pytest.mark.parametrize(
    ("experiment", "machine", "words"),
    [
        (throughput(epochs=5), MACHINE, "another study: epochs is 3 in the folder and 5 in"),
        (throughput(batch_sizes=[8]), MACHINE, "batch_sizes is 8,16 in the folder and 8 in"),
        (
            throughput(train={"dataset": "sample"}),
            MACHINE,
            "train.depth is 10 in the folder and None in this",
        ),
        (None, MACHINE | {"cores": 4}, "cores is 2 in the folder and 4 on this machine"),
    ],
)
def test_a_folder_of_other_settings_is_told(finished, runs, experiment, machine, words):
    with pytest.raises(UserError, match=words):
        run(runs, experiment, machine=machine, output="out")


def test_a_folder_that_holds_something_else_is_told(here, runs):
    (here / "out").mkdir()
    (here / "out" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="contains no study"):
        run(runs, output="out")
    with pytest.raises(UserError, match="cannot write"):
        run(runs, output="out/thesis.tex/more")
    assert runs.names == []


def test_points_whose_rows_are_gone_are_run_again(finished, here, runs):
    file = here / "out" / "points.json"
    _, _, *rest = json.loads(file.read_text())
    file.write_text(json.dumps(rest))
    _, out = run(runs, output="out")
    assert runs.names == [FIRST, SECOND]
    assert [row["name"] for row in json.loads(file.read_text())] == NAMES


def test_a_sweep_whose_rows_are_damaged_is_told_and_not_resumed(finished, here, runs):
    (here / "out" / "points.json").write_text("{")
    with pytest.raises(UserError, match="points.json is damaged"):
        run(runs, output="out")
    assert runs.names == []


def test_only_one_process_works_on_a_sweep(here, runs):
    runs.at[FIRST] = KeyboardInterrupt()
    run(runs, output="out")
    lock = FolderLock(here / "out")
    with pytest.raises(UserError, match="is in use by process"):
        run(runs, output="out")
    lock.release()


# Before the devices are listed


def explode(*args, **options):
    raise AssertionError("nothing is to be run, and no device to be listed")


def test_a_sweep_begins_without_its_libraries():
    heavy = {"tensorflow", "keras"}
    code = f"import kdist.study.sweep_run, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_sweep_says_what_it_does_before_it_lists_the_devices(here):
    out = io.StringIO()

    def listed():
        assert (
            "Sweep throughput: 8 runs (replicas 1,2; epochs 3; rounds 2; batch_sizes 8,16)\n"
        ) in out.getvalue()
        return MACHINE

    console = Console(file=out, width=200)
    outcome = sweep(throughput(), start=FakeRuns(), machine=listed, console=console)
    assert outcome.exit_code == 0


def test_a_batch_larger_than_the_data_is_refused_before_the_devices_are_listed(here):
    words = "a global batch of 16,000 needs more than the 10,000 training images"
    with pytest.raises(UserError, match=words):
        sweep(throughput(train={"dataset": "sample"}, batch_sizes=[8, 8000]), machine=explode)


def test_what_no_run_would_take_is_refused_before_the_devices_are_listed(here):
    with pytest.raises(UserError, match="depth has to be 6n"):
        sweep(throughput(train={"depth": 12}), machine=explode)
    assert not (here / "runs").exists()
