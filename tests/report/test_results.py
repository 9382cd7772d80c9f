"""The table of runs, and the sections of sweeps and searches."""

import json

import pytest
from kdist.report.find_records import find_records
from kdist.report.write_report import make_runs_table, make_sections, render_report
from kdist.study.study_folder import FORMAT
from report_folders import (
    accuracy_rows,
    scaling_rows,
    search_trials,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)


def sections_of(*paths):
    return make_sections(find_records([str(path) for path in paths]))


def test_runs_of_different_data_sets_are_not_compared(tmp_path):
    slow = write_run(tmp_path / "cifar", (0.3, 0.6), dataset="cifar10")
    summary = slow / "summary.json"
    summary.write_text(summary.read_text().replace("the embedded sample", "/data/cifar10"))
    sections = sections_of(slow, write_run(tmp_path / "sample"))
    assert [section.title for section in sections] == [
        "Runs on cifar10",
        "Runs on the embedded sample",
    ]
    assert [len(section.tables[0].rows) for section in sections] == [1, 1]


def test_the_title_names_a_single_record_and_counts_several(tmp_path):
    sweep = write_sweep(tmp_path / "s", "accuracy", accuracy_rows()[:1])
    write_run(tmp_path / "a")
    point = sweep / "points" / "b32-linear-seed0" / "run"
    for path, title in ((sweep, "s"), (point, "b32-linear-seed0"), (tmp_path, "1 sweep, 1 run")):
        assert f"<h1>{title}</h1>" in render_report(find_records([str(path)]))


def test_the_best_run_comes_first(tmp_path):
    write_run(tmp_path / "a", (0.5, 0.6))
    write_run(tmp_path / "b", (0.9, 0.1))
    write_run(tmp_path / "c", ())
    (section,) = sections_of(tmp_path)
    assert [row[0] for row in section.tables[0].rows] == ["b", "a", "c"]
    names = [series.name for series in section.figures[0].charts[0].series]
    assert names == ["b", "a", "c"]


def lines(path):
    table = make_runs_table(find_records([str(path)]).runs)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_a_line_of_a_run(tmp_path):
    write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=64)
    (line,) = lines(tmp_path)
    expected = {"Best val. accuracy": "0.9000", "Images/s": "100", "Global batch": "64"}
    expected |= {"Time to target": "20.0 s", "Total time": "30.5 s", "Status": "complete"}
    assert line | expected == line
    write_run(tmp_path / "b", (0.5,), batch_size=32)
    one, two = lines(tmp_path)
    assert (one["Global batch"], two["Global batch"]) == ("64", "32")
    assert (one["batch_size"], two["batch_size"]) == ("64", "32")
    assert not {"model", "optimizer", "dataset", "depth"} & set(one)  # both have the same
    assert two["Images/s"] == "50 (first epoch)"


def test_runs_that_did_not_end_well_are_marked(tmp_path):
    runs = {name: write_run(tmp_path / name) for name in ("done", "killed", "diverged")}
    (runs["killed"] / "summary.json").unlink()
    summary = (runs["diverged"] / "summary.json").read_text()
    marked = summary.replace("{", '{"diverged": {"epoch": 4, "step": 17}, ', 1)
    (runs["diverged"] / "summary.json").write_text(marked)
    write_run(tmp_path / "early")
    for file in ("summary.json", "history.csv"):
        (tmp_path / "early" / file).unlink()
    found = {line["Run"]: line for line in lines(tmp_path)}
    assert {name: line["Status"] for name, line in found.items()} == {
        "done": "complete",
        "diverged (diverged)": "diverged in epoch 4, step 17",
        "killed (unfinished)": "killed or still running",
        "early (unfinished)": "killed or still running",
    }
    assert found["killed (unfinished)"]["Best val. accuracy"] == "0.9000"
    assert found["killed (unfinished)"]["Total time"] == "30.0 s"
    assert found["early (unfinished)"]["Time to target"] == "\N{EN DASH}"


def test_replicas_that_share_cores_or_are_of_workers_are_marked(tmp_path):
    write_run(tmp_path / "alone", replicas=2)
    together = write_run(tmp_path / "together", replicas=2) / "summary.json"
    together.write_text(together.read_text().replace("{", '{"workers": 2, ', 1))
    gpus = write_run(tmp_path / "gpus", replicas=2) / "summary.json"
    gpus.write_text(gpus.read_text().replace("CPU:", "GPU:"))
    assert {line["Run"]: line["Replicas"] for line in lines(tmp_path)} == {
        "alone": "2, shared cores",
        "gpus": "2",
        "together": "2 of 2 workers, shared cores",
    }


@pytest.mark.parametrize(
    ("kind", "rows"), [("throughput", throughput_rows), ("scaling", scaling_rows)]
)
def test_a_sweep_of_logical_cpus_has_a_warning(tmp_path, kind, rows):
    gpus = {"cpu": "x", "devices": ["GPU:0 x", "GPU:1 x"]}
    (cores,) = sections_of(write_sweep(tmp_path / "cores", kind, rows()))
    assert "do not measure a speed-up" in cores.lead
    for name, machine in (("gpus", gpus), ("unknown", {"devices": None})):
        (section,) = sections_of(write_sweep(tmp_path / name, kind, rows(), machine=machine))
        assert "speed-up" not in section.lead


@pytest.mark.parametrize("kind", ["throughput", "accuracy", "scaling"])
def test_a_sweep_whose_points_all_failed(tmp_path, kind):
    rows = [{"status": "failed", "error": "out of memory", "batch_size": 8, "replicas": 1}]
    (section,) = sections_of(write_sweep(tmp_path / kind, kind, rows))
    assert section.figures == []
    (table,) = section.tables
    assert table.rows == [("p0", "out of memory")]


def test_a_search_among_runs_is_shown(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_search(tmp_path / "runs" / "tune", search_trials())
    section, runs = sections_of(tmp_path / "runs")
    assert section.title == "Search: tune"
    assert runs.title == "Runs on the embedded sample"
    assert section.lead == (
        "Random search of WRN-10-1 for the highest val_accuracy: 5 trials finished, 1 failed."
    )
    trials, failures = section.tables
    assert trials.columns == ["Trial", "val_accuracy", "Time", "Epochs", "Settings"]
    settings = "base_lr 0.03, batch_size 32, dropout 0.1"
    assert list(trials.rows[0]) == ["3", "0.9", "13.0 s", "3", settings]
    assert failures.rows == [("trial-5", "the loss was not finite: epoch 1, step 4")]
    (figure,) = section.figures
    # The dropout did not vary; the trial that failed has no score.
    assert [chart.x_label for chart in figure.charts] == ["Trial", "base_lr", "batch_size"]
    assert [point.x for point in figure.charts[0].series[0].points] == [1, 2, 3, 4, 5]


def test_a_search_whose_trials_failed_or_that_has_none(tmp_path):
    failed = [trial for trial in search_trials() if trial.get("status") == "failed"]
    write_search(tmp_path / "failed", failed)
    write_search(tmp_path / "new", [])
    failed, new = sections_of(tmp_path)
    assert "0 trials finished, 1 failed" in failed.lead
    assert (failed.figures, new.tables, new.figures) == ([], [], [])


NOTHING = {"settings": {}, "machine": {}}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("study.json", "[1]"),
        ("study.json", "{"),
        ("study.json", '{"future": 1}'),
        ("study.json", json.dumps({"format": FORMAT})),
        *(
            ("study.json", json.dumps({"format": FORMAT, "kind": kind, **NOTHING}))
            for kind in ("search", "of a newer version")
        ),
        ("trials.json", "{"),
    ],
)
def test_a_damaged_search_is_skipped_with_the_reason(tmp_path, file, content):
    write_run(tmp_path / "a")
    search = write_search(tmp_path / "tune", search_trials())
    (search / file).write_text(content)
    ((path, reason),) = find_records([str(tmp_path)]).skipped
    assert path == str(search)
    assert reason
