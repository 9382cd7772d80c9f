import json

import pytest
from kdist.errors import UserError
from kdist.report.inputs import find_sources
from kdist.report.studies import read_study
from kdist.study.experiment import COLUMNS
from kdist.study.folder import FORMAT
from report_folders import accuracy_rows, throughput_rows, write_run
from report_folders import write_sweep as write_whole_sweep

ABOUT = {"format": FORMAT, "kind": "throughput", "settings": {"epochs": 3}, "machine": {}}


def write_sweep(folder, **about):
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps(ABOUT | about))


def point(name="one", /, **values):
    row = dict.fromkeys(COLUMNS) | {"kind": "throughput", "status": "done"}
    row |= {"name": name, "batch_size": 8, "replicas": 1, "images_per_step": 8}
    row |= dict.fromkeys(("images_per_sec", "images_per_sec_low", "images_per_sec_high"), 50.0)
    return row | values


def test_rows_come_back(tmp_path):
    write_sweep(tmp_path)
    assert read_study(tmp_path).rows == []
    rows = [point("b"), point("a")]
    (tmp_path / "points.json").write_text(json.dumps(rows))
    sweep = read_study(tmp_path)
    assert sweep.rows == rows
    assert (sweep.kind, sweep.settings, sweep.machine) == (
        "throughput",
        {"epochs": 3},
        {},
    )
    assert sweep.path == tmp_path
    assert sweep.skipped == []


def test_what_is_no_row_is_left_out(tmp_path):
    write_sweep(tmp_path)
    good = point("good")
    failed = point("failed", images_per_sec=None, status="failed", error="no")
    others = [
        point(images_per_sec="fast"),
        point(images_per_sec_low=-1.0),
        point(images_per_sec=None),
        point(status="running"),
        point(status=None),
        point(None),
        point(["one"]),
        {"epochs": 3},
        [],
        "one",
        None,
    ]
    rows = [*others, good | {"of another version": 1}, failed]
    (tmp_path / "points.json").write_text(json.dumps(rows))
    assert read_study(tmp_path).rows == [good, failed]


@pytest.mark.parametrize("content", [b'[{"name": "br', b"{}", b"[" * 100_000, b"\xff\xfe"])
def test_rows_that_are_damaged_are_told(tmp_path, content):
    write_sweep(tmp_path)
    (tmp_path / "points.json").write_bytes(content)
    with pytest.raises(UserError, match="points.json is damaged"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 99}, "has format 99, this kdist reads 5"),
        ({"kind": "speed"}, "kind 'speed', which is unknown"),
        ({"kind": []}, "lacks a study's kind"),
        ({"settings": None}, "lacks a study's kind, settings or machine"),
    ],
)
def test_another_version_or_content_is_told(tmp_path, about, words):
    write_sweep(tmp_path, **about)
    with pytest.raises(UserError, match=words):
        read_study(tmp_path)


def test_no_sweep_is_told(tmp_path):
    with pytest.raises(UserError, match="not the folder of a study"):
        read_study(tmp_path / "missing")
    for text in ("{", "[" * 100_000, "[]"):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(UserError, match="study.json is damaged"):
            read_study(tmp_path)


def sweep_of(tmp_path, kind, rows):
    return find_sources([str(write_whole_sweep(tmp_path / "s", kind, rows))]).sweeps[0]


def test_failed_points_are_kept_apart(tmp_path):
    failed = {"name": "big", "status": "failed", "error": "out of memory", "batch_size": 512}
    sweep = sweep_of(tmp_path, "throughput", [*throughput_rows((1,), (8, 16), 1), failed])
    assert [row["name"] for row in sweep.failed] == ["big"]
    assert [row["name"] for row in sweep.done] == ["b8-r1-round1", "b16-r1-round1"]


def test_only_whole_trainings_have_runs_to_show(tmp_path):
    assert sweep_of(tmp_path, "throughput", throughput_rows()).runs == {}
    runs = sweep_of(tmp_path / "other", "accuracy", accuracy_rows()[:2]).runs
    assert list(runs) == ["b32-linear-seed0", "b32-linear-seed1"]


def test_a_point_whose_run_folder_is_incomplete_is_listed(tmp_path):
    folder = write_whole_sweep(tmp_path / "s", "accuracy", accuracy_rows()[:2])
    (folder / "points" / "b32-linear-seed0" / "run" / "summary.json").unlink()
    sources = find_sources([str(folder)])
    assert [run.path.parent.name for run in sources.all_runs] == ["b32-linear-seed1"]
    ((_, reason),) = sources.sweeps[0].skipped
    assert "incomplete: summary.json" in reason


def test_a_run_folder_outside_the_sweep_is_not_followed(tmp_path):
    write_run(tmp_path / "elsewhere")
    rows = [accuracy_rows()[0] | {"run_dir": "../elsewhere"}]
    rows[0].pop("run")
    folder = write_whole_sweep(tmp_path / "s", "accuracy", rows)
    sources = find_sources([str(folder)])
    assert sources.all_runs == []
    ((_, reason),) = sources.sweeps[0].skipped
    assert "outside" in reason
