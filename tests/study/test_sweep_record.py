from kdist.report.inputs import find_sources
from report_folders import accuracy_rows, throughput_rows, write_run, write_sweep


def sweep_of(tmp_path, kind, rows):
    return find_sources([str(write_sweep(tmp_path / "s", kind, rows))]).sweeps[0]


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
    folder = write_sweep(tmp_path / "s", "accuracy", accuracy_rows()[:2])
    (folder / "points" / "b32-linear-seed0" / "run" / "summary.json").unlink()
    sources = find_sources([str(folder)])
    assert [run.path.parent.name for run in sources.all_runs] == ["b32-linear-seed1"]
    ((_, reason),) = sources.sweeps[0].skipped
    assert "incomplete: summary.json" in reason


def test_a_run_folder_outside_the_sweep_is_not_followed(tmp_path):
    write_run(tmp_path / "elsewhere")
    rows = [accuracy_rows()[0] | {"run_dir": "../elsewhere"}]
    rows[0].pop("run")
    folder = write_sweep(tmp_path / "s", "accuracy", rows)
    sources = find_sources([str(folder)])
    assert sources.all_runs == []
    ((_, reason),) = sources.sweeps[0].skipped
    assert "outside" in reason
