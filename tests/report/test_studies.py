import json

import pytest
from kdist.errors import UserError
from kdist.report.find_records import find_records, read_study
from kdist.study.experiment import POINT_COLUMNS
from kdist.study.study_folder import FORMAT
from kdist.study.sweep_kinds import ThroughputSweep
from report_folders import accuracy_rows, throughput_rows, write_run
from report_folders import write_sweep as write_whole_sweep

ABOUT = {"format": FORMAT, "kind": "throughput", "settings": {"epochs": 3}, "machine": {}}


def write_sweep(folder, **about):
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps(ABOUT | about))


def point(name="one", /, **values):
    row = dict.fromkeys(POINT_COLUMNS) | {"kind": "throughput", "status": "done"}
    row |= {"name": name, "batch_size": 8, "replicas": 1, "images_per_step": 8}
    return row | {"images_per_sec": 50.0} | values


def test_rows_come_back(tmp_path):
    write_sweep(tmp_path)
    assert read_study(tmp_path).rows == []
    rows = [point("b"), point("a")]
    (tmp_path / "points.json").write_text(json.dumps(rows))
    sweep = read_study(tmp_path)
    assert sweep.rows == rows
    assert sweep.experiment is ThroughputSweep
    assert (sweep.path, sweep.settings, sweep.machine) == (tmp_path, {"epochs": 3}, {})


@pytest.mark.parametrize("content", [b'[{"name": "br', b"\xff\xfe"])
def test_rows_that_are_damaged_are_told(tmp_path, content):
    write_sweep(tmp_path)
    (tmp_path / "points.json").write_bytes(content)
    with pytest.raises(UserError, match="points.json is damaged"):
        read_study(tmp_path)


def test_another_version_is_told(tmp_path):
    write_sweep(tmp_path, format=99)
    with pytest.raises(UserError, match="has format 99, but this version of kdist reads format 5"):
        read_study(tmp_path)


def test_no_sweep_is_told(tmp_path):
    with pytest.raises(UserError, match="not the folder of a sweep or search"):
        read_study(tmp_path / "missing")
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(UserError, match="study.json is damaged"):
        read_study(tmp_path)


def sweep_of(tmp_path, kind, rows):
    return find_records([str(write_whole_sweep(tmp_path / "s", kind, rows))]).sweeps[0]


def test_whole_trainings_are_among_the_runs_and_timed_ones_are_not(tmp_path):
    folder = write_whole_sweep(tmp_path / "accuracy", "accuracy", accuracy_rows()[:2])
    timed = write_whole_sweep(tmp_path / "timed", "throughput", throughput_rows()[:1])
    write_run(timed / "points" / "b8-r1-round1" / "run", validate=False)
    sources = find_records([str(tmp_path)])
    assert [run.name for run in sources.runs] == ["b32-linear-seed0", "b32-linear-seed1"]
    (folder / "points" / "b32-linear-seed0" / "run" / "summary.json").unlink()
    (folder / "points" / "b32-linear-seed1" / "run" / "config.json").unlink()
    sources = find_records([str(tmp_path)])
    assert [run.name for run in sources.runs] == ["b32-linear-seed0 (unfinished)"]
    ((path, reason),) = sources.skipped
    assert path.endswith("b32-linear-seed1/run")
    assert reason == "incomplete: config.json missing"
