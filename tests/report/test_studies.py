import json

import pytest
from kdist.errors import UserError
from kdist.report.inputs import find_sources
from kdist.report.studies import read_study
from kdist.study.folder import FORMAT
from kdist.study.sweep_kinds import ThroughputSweep
from report_folders import accuracy_rows, throughput_rows, write_run
from report_folders import write_sweep as write_whole_sweep

ABOUT = {"format": FORMAT, "kind": "throughput", "settings": {"epochs": 3}, "machine": {}}


def write_sweep(folder, **about):
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text(json.dumps(ABOUT | about))


def write_point(folder, name, /, **values):
    row = dict.fromkeys(ThroughputSweep.columns()) | {"kind": "throughput", "status": "done"}
    row |= {"name": name, "batch_size": 8, "replicas": 1, "images_per_step": 8}
    row |= dict.fromkeys(("images_per_sec", "images_per_sec_low", "images_per_sec_high"), 50.0)
    row |= values
    (folder / "points" / name).mkdir(parents=True)
    (folder / "points" / name / "point.json").write_text(json.dumps(row))
    return row


def test_rows_come_back_by_name(tmp_path):
    write_sweep(tmp_path)
    two, one = (write_point(tmp_path, name) for name in ("b", "a"))
    sweep = read_study(tmp_path)
    assert sweep.rows == [one, two]
    assert (sweep.kind, sweep.settings, sweep.machine) == (
        "throughput",
        {"epochs": 3},
        {},
    )
    assert sweep.path == tmp_path
    assert sweep.skipped == []


def test_folders_that_hold_no_row_are_listed_and_skipped(tmp_path):
    write_sweep(tmp_path)
    write_point(tmp_path, "good")
    write_point(tmp_path, "copied", name="other")
    write_point(tmp_path, "edited", images_per_sec="fast")
    write_point(tmp_path, "negative", images_per_sec_low=-1.0)
    write_point(tmp_path, "scaling", kind="scaling")
    write_point(tmp_path, "speedless", images_per_sec=None)
    write_point(tmp_path, "failed", images_per_sec=None, status="failed", error="no")
    for name, text in (("broken", '{"name": "br'), ("foreign", '{"epochs": 3}'), ("list", "[]")):
        (tmp_path / "points" / name).mkdir()
        (tmp_path / "points" / name / "point.json").write_text(text)
    (tmp_path / "points" / "killed" / "run").mkdir(parents=True)
    (tmp_path / "points" / "a file").write_text("")
    (tmp_path / "points" / "binary").mkdir()
    (tmp_path / "points" / "binary" / "point.json").write_bytes(b"\xff\xfe")
    (tmp_path / "points" / "deep").mkdir()
    (tmp_path / "points" / "deep" / "point.json").write_text("[" * 100_000)
    sweep = read_study(tmp_path)
    assert [row["name"] for row in sweep.rows] == ["failed", "good"]
    skipped = dict(sweep.skipped)
    assert list(skipped) == [
        *("a file", "binary", "broken", "copied", "deep", "edited", "foreign", "killed", "list"),
        *("negative", "scaling", "speedless"),
    ]
    assert "images_per_sec_low -1.0" in skipped["negative"]
    assert "kind 'scaling', not 'throughput'" in skipped["scaling"]
    assert skipped["speedless"] == "point.json has no images_per_sec"
    assert "it has not ended" in skipped["killed"]
    assert "images_per_sec 'fast'" in skipped["edited"]
    assert "of 'other'" in skipped["copied"]
    assert "cannot be read" in skipped["broken"]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 99}, "has format 99, this kdist reads 3"),
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
    (tmp_path / "study.json").unlink()
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(UserError, match="written by an earlier kdist"):
        read_study(tmp_path)


def sweep_of(tmp_path, kind, rows):
    return find_sources([str(write_whole_sweep(tmp_path / "s", kind, rows))]).sweeps[0]


def test_failed_points_are_kept_apart(tmp_path):
    failed = {"name": "big", "status": "failed", "error": "out of memory", "batch_size": 512}
    sweep = sweep_of(tmp_path, "throughput", [*throughput_rows((1,), (8, 16), 1), failed])
    assert [row["name"] for row in sweep.failed] == ["big"]
    assert [row["name"] for row in sweep.done] == ["b16-r1-round1", "b8-r1-round1"]


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
