from kdist.report.inputs import find_sources
from report_folders import accuracy_rows, scaling_rows, throughput_rows, write_run, write_sweep


def sweep_of(tmp_path, kind, rows):
    return find_sources([str(write_sweep(tmp_path / "s", kind, rows))]).sweeps[0]


def test_rounds_and_seeds_are_one_group(tmp_path):
    sweep = sweep_of(tmp_path, "throughput", throughput_rows(batches=(8, 16)))
    assert [(g.series, g.batch_size, g.global_batch, len(g.rows)) for g in sweep.groups] == [
        ("1 replica", 8, 8, 2),
        ("1 replica", 16, 16, 2),
        ("2 replicas", 8, 16, 2),
        ("2 replicas", 16, 32, 2),
    ]
    assert sweep.runs == []


def test_series_are_what_the_sweep_varies(tmp_path):
    sweep = sweep_of(tmp_path, "scaling", scaling_rows())
    assert {group.series for group in sweep.groups} == {"full", "without collectives"}
    rules = sweep_of(tmp_path / "other", "accuracy", accuracy_rows()[:4])
    assert {group.series for group in rules.groups} == {"measured"}


def test_failed_points_are_kept_apart(tmp_path):
    failed = {"name": "big", "status": "failed", "error": "out of memory", "batch_size": 512}
    sweep = sweep_of(tmp_path, "throughput", [*throughput_rows((1,), (8, 16), 1), failed])
    assert [row["name"] for row in sweep.failed] == ["big"]
    assert len(sweep.groups) == 2


def test_a_number_that_cannot_be_counts_as_not_told(tmp_path):
    rows = throughput_rows((1,), (8, 16), 1)
    rows[0] |= {"images_per_sec": float("nan"), "seconds": -1.0}
    sweep = sweep_of(tmp_path, "throughput", rows)
    row = sweep.groups[0].rows[0]
    assert (row["images_per_sec"], row["seconds"]) == (None, None)


def test_a_point_whose_run_folder_is_broken_is_told(tmp_path):
    folder = write_sweep(tmp_path / "s", "accuracy", accuracy_rows()[:2])
    (folder / "points" / "b32-linear-seed0" / "run" / "summary.json").unlink()
    sources = find_sources([str(folder)])
    assert [run.name for run in sources.all_runs] == ["b32-linear-seed1"]
    assert "half-written" in sources.left_out[0].reason


def test_a_run_folder_outside_the_sweep_is_not_followed(tmp_path):
    write_run(tmp_path / "elsewhere")
    rows = [accuracy_rows()[0] | {"run_dir": "../elsewhere"}]
    rows[0].pop("run")
    folder = write_sweep(tmp_path / "s", "accuracy", rows)
    sources = find_sources([str(folder)])
    assert sources.all_runs == []
    assert "outside" in sources.left_out[0].reason
