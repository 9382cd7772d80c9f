"""Headlines, the table of runs, and the sections of sweeps, searches and settings."""

import json
import math

import pytest
from kdist.report.sources import find_sources
from kdist.report.write_report import find_headlines, find_results, make_sections, runs_table
from report_folders import (
    accuracy_rows,
    scaling_rows,
    search_trials,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)


def headlines_of(*paths):
    found = find_headlines(find_results(find_sources([str(path) for path in paths])))
    return {headline.title.split()[0]: headline for headline in found}


def sections_of(*paths):
    return make_sections(find_sources([str(path) for path in paths]))


def test_one_run(tmp_path):
    found = headlines_of(write_run(tmp_path / "a", (0.5, 0.9, 0.88)))
    assert found["Best"].title == "Best validation accuracy on the embedded sample"
    assert found["Best"].value == "0.9000"
    assert found["Best"].about == "a, the best of 1 run and all epochs"
    assert (found["Images"].value, found["Images"].about) == ("100", "a; median of 1 run")
    assert found["Time"].title == "Time to accuracy above 0.85 on the embedded sample"
    assert found["Time"].value == "20.0 s"
    assert found["Time"].about == "a; median, 1 of 1 run reached it"


def test_runs_of_different_data_sets_are_not_compared(tmp_path):
    slow = write_run(tmp_path / "cifar", (0.3, 0.6), rates=(5.0,), dataset="cifar10")
    summary = slow / "summary.json"
    summary.write_text(summary.read_text().replace("the embedded sample", "/data/cifar10"))
    paths = [slow, write_run(tmp_path / "sample")]
    headlines = find_headlines(find_results(find_sources(list(map(str, paths)))))
    titles = {headline.title: headline for headline in headlines}
    assert titles["Best validation accuracy on cifar10"].value == "0.6000"
    assert titles["Images per second on cifar10"].value == "5"
    assert titles["Time to accuracy above 0.85 on cifar10"].value == "not reached"
    assert titles["Best validation accuracy on the embedded sample"].value == "0.9000"
    assert len(headlines) == 6
    sections = sections_of(*paths)
    assert [section.title for section in sections] == [
        "Runs on cifar10",
        "Runs on the embedded sample",
    ]
    assert [len(section.tables[0].rows) for section in sections] == [1, 1]


def test_runs_that_differ_in_seed_are_one_setting(tmp_path):
    quick = [write_run(tmp_path / f"q{seed}", (0.5, 0.9), seed=seed) for seed in range(3)]
    lucky = write_run(tmp_path / "lucky", (0.5, 0.6, 0.95), batch_size=16)
    found = headlines_of(*quick, lucky)
    assert found["Best"].about.startswith("lucky, the best of 4 runs")
    expected = "q0 and 2 more; median, 3 of 3 runs reached it, from 20.0 s to 20.0 s"
    assert found["Time"].about == expected
    assert found["Images"].about == "q0 and 2 more; median of 3 runs"


def test_runs_that_never_got_there_count_as_such(tmp_path):
    one = write_run(tmp_path / "a", (0.5, 0.9), seed=0)
    others = [write_run(tmp_path / f"o{seed}", (0.5, 0.6), seed=seed) for seed in (1, 2)]
    found = headlines_of(one, *others)
    assert (found["Time"].value, found["Time"].about) == ("not reached", "1 of 3 runs reached it")


def test_a_run_that_diverged_never_gets_there(tmp_path):
    write_run(tmp_path / "lost", (0.5,))
    path = tmp_path / "lost" / "summary.json"
    lost = {"diverged": {"epoch": 2, "step": 1}, "seconds": 1.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    (found,) = find_results(find_sources([str(tmp_path / "lost")]))
    assert math.isinf(found.time)
    assert headlines_of(tmp_path / "lost")["Time"].value == "not reached"


def test_times_to_different_targets_are_not_compared(tmp_path):
    easy = write_run(tmp_path / "easy", (0.5, 0.6), target_accuracy=0.4)
    hard = [write_run(tmp_path / f"h{n}", (0.5, 0.9), width=n) for n in (1, 2)]
    title = headlines_of(easy, *hard)["Time"].title
    assert title == "Time to accuracy above 0.85 on the embedded sample"


def test_headlines_of_sweeps(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "a", "accuracy", accuracy_rows()))
    assert found["Best"].value == "0.8950"
    assert found["Best"].about.startswith("b32-linear-seed0, the best of 18 runs")
    assert found["Time"].value == "29.0 s"  # the median of 30, 29 and 28
    found = headlines_of(write_sweep(tmp_path / "t", "throughput", throughput_rows()))
    assert list(found) == ["Images"]
    # 128 images in 0.05 + 0.256 seconds, and 10 % slower.
    speeds = (128 / 0.306, 128 / 0.306 / 1.1)
    assert found["Images"].value == f"{sum(speeds) / 2:.0f}"
    assert found["Images"].about == "t, b64-r2-round1 and 1 more; median of 2 runs"


def test_a_sweep_whose_settings_are_odd_is_shown(tmp_path):
    for kind, rows in (("throughput", throughput_rows()), ("accuracy", accuracy_rows()[:1])):
        sweep = write_sweep(tmp_path / kind, kind, rows, settings={"train": 5})
        assert sections_of(sweep)[0].tables[0].rows
        assert headlines_of(sweep)


@pytest.mark.parametrize("accuracies", [(), (0.0,)])
def test_a_run_that_learned_nothing(tmp_path, accuracies):
    found = headlines_of(write_run(tmp_path / "a", accuracies))
    assert (found["Time"].value, found["Time"].about) == ("not reached", "0 of 1 run reached it")


def test_the_speed_of_a_first_epoch_is_never_the_fastest(tmp_path):
    cold = write_run(tmp_path / "cold", (0.5,), rates=(9000.0,))
    assert "Images" not in headlines_of(cold)
    speed = headlines_of(cold, write_run(tmp_path / "warm"))["Images"]
    assert (speed.value, speed.about) == ("100", "warm; median of 1 run")


def lines(path):
    table = runs_table(find_sources([str(path)]).runs)
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
    # Speeds of one and of two workers are not averaged.
    assert len({result.setting for result in find_results(find_sources([str(tmp_path)]))}) == 2


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
        "Random search of WRN-10-1 for the highest val_accuracy: 5 trials completed, 1 failed."
    )
    trials, failures = section.tables
    assert trials.columns == ["Trial", "val_accuracy", "Time", "Epochs", "Settings"]
    settings = "base_lr 0.03, batch_size 32, dropout 0.1"
    assert list(trials.rows[0]) == ["3", "0.9", "13.0 s", "3", settings]
    assert failures.rows == [("trial-5", "the loss was not finite: epoch 1, step 4")]
    (figure,) = section.figures
    # The dropout did not vary; the trial that failed has no score.
    assert [chart.axis for chart in figure.charts] == ["Trial", "base_lr", "batch_size"]
    assert [point.x for point in figure.charts[0].series[0].points] == [1, 2, 3, 4, 5]


def test_trials_count_for_the_best_accuracy(tmp_path):
    found = headlines_of(write_search(tmp_path / "tune", search_trials()))
    assert list(found) == ["Best"]
    assert found["Best"].title == "Best validation accuracy on fashion_mnist"
    assert found["Best"].value == "0.9000"
    assert found["Best"].about == "tune, trial-3, the best of 5 runs and all epochs"


def test_a_search_whose_trials_failed_or_that_has_none(tmp_path):
    failed = [trial for trial in search_trials() if trial.get("status") == "failed"]
    write_search(tmp_path / "failed", failed)
    write_search(tmp_path / "new", [])
    failed, new = sections_of(tmp_path)
    assert "0 trials completed, 1 failed" in failed.lead
    assert (failed.figures, new.tables, new.figures) == ([], [], [])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("study.json", "[1]"),
        ("study.json", "{"),
        ("study.json", '{"future": 1}'),
        ("trials.json", "{}"),
        ("trials.json", '[{"name": "trial-0", "status": "done"}]'),
    ],
)
def test_a_damaged_search_is_skipped_with_the_reason(tmp_path, file, content):
    write_run(tmp_path / "a")
    search = write_search(tmp_path / "tune", search_trials())
    (search / file).write_text(content)
    ((path, reason),) = find_sources([str(tmp_path)]).skipped
    assert path == str(search)
    assert reason
