"""Headlines, the table of runs, and the sections of sweeps, searches and settings."""

import json
import math

import pytest
from kdist.report.inputs import find_sources
from kdist.report.results import find_results, headlines
from kdist.report.sections import make_report, runs_table
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
    found = headlines(find_results(find_sources([str(path) for path in paths])))
    return {one.title.split()[0]: one for one in found}


def report_of(*paths, **options):
    return make_report(find_sources([str(path) for path in paths]), **options)


def test_one_run(tmp_path):
    found = headlines_of(write_run(tmp_path / "a", (0.5, 0.9, 0.88)))
    best = found["Best"]
    assert (best.value, best.of) == ("0.9000", "a, epoch 2")
    # Wilson's interval of 900 right of 1,000, by its closed form.
    z, p, n = 1.959964, 0.9, 1000
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    assert f"{middle - half:.3f} to {middle + half:.3f}" in best.certainty
    assert found["Images"].value == "100"
    assert found["Images"].certainty == "Median of 1 run; epochs from 90 to 110."
    assert found["Time"].title == "Time to accuracy above 0.85"
    assert (found["Time"].value, found["Time"].of) == ("20.0 s", "a: 1 replica, global batch 32")
    assert "too few for an interval" in found["Time"].certainty


def test_runs_that_differ_in_seed_are_one_setting(tmp_path):
    quick = [write_run(tmp_path / f"q{seed}", (0.5, 0.9), seed=seed) for seed in range(3)]
    lucky = write_run(tmp_path / "lucky", (0.5, 0.6, 0.95), batch_size=16)
    found = headlines_of(*quick, lucky)
    assert found["Best"].of == "lucky, epoch 3"
    assert "best of 4 runs" in found["Best"].certainty
    assert found["Time"].of == "q0 and 2 more: 1 replica, global batch 32"
    assert "3 of 3 runs reached it" in found["Time"].certainty
    assert found["Images"].certainty.startswith("Median of 3 runs")


def test_runs_that_never_got_there_count_as_such(tmp_path):
    one = write_run(tmp_path / "a", (0.5, 0.9), seed=0)
    others = [write_run(tmp_path / f"o{seed}", (0.5, 0.6), seed=seed) for seed in (1, 2)]
    found = headlines_of(one, *others)
    assert (found["Time"].value, found["Time"].of) == ("not reached", "1 of 3 runs reached it")


def test_a_run_that_diverged_never_gets_there(tmp_path):
    """It ended first, and must not count as one that was given up then."""
    write_run(tmp_path / "lost", (0.5,))
    path = tmp_path / "lost" / "summary.json"
    lost = {"diverged": {"epoch": 2, "step": 1}, "seconds": 1.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    (found,) = find_results(find_sources([str(tmp_path / "lost")]))
    assert (found.reached, found.duration) == (False, math.inf)
    assert headlines_of(tmp_path / "lost")["Time"].value == "not reached"


def test_times_to_different_targets_are_not_compared(tmp_path):
    easy = write_run(tmp_path / "easy", (0.5, 0.6), target_accuracy=0.4)
    hard = [write_run(tmp_path / f"h{n}", (0.5, 0.9), width=n) for n in (1, 2)]
    assert headlines_of(easy, *hard)["Time"].title == "Time to accuracy above 0.85"


def test_headlines_of_sweeps(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "a", "accuracy", accuracy_rows()))
    assert (found["Best"].value, found["Best"].of) == ("0.8950", "b32-linear-seed0, epoch 3")
    assert found["Time"].value == "29.0 s"  # the median of 30, 29 and 28
    found = headlines_of(write_sweep(tmp_path / "t", "throughput", throughput_rows()))
    assert list(found) == ["Images"]
    # 128 images in 0.05 + 0.256 seconds, and 10 % slower.
    speeds = (128 / 0.306, 128 / 0.306 / 1.1)
    assert found["Images"].value == f"{sum(speeds) / 2:.0f}"
    assert found["Images"].certainty.startswith(f"Median of 2 runs; epochs from {speeds[1]:.0f}")


@pytest.mark.parametrize("accuracies", [(), (0.0,)])
def test_a_run_that_learned_nothing(tmp_path, accuracies):
    found = headlines_of(write_run(tmp_path / "a", accuracies))
    assert (found["Time"].value, found["Time"].of) == ("not reached", "0 of 1 run reached it")


def test_the_speed_of_a_first_epoch_is_never_the_fastest(tmp_path):
    cold = write_run(tmp_path / "cold", (0.5,), rates=(9000.0,))
    speed = headlines_of(cold)["Images"]
    assert speed.value == "9,000"
    assert "first epoch, which includes the tracing of the step" in speed.certainty
    speed = headlines_of(cold, write_run(tmp_path / "warm"))["Images"]
    assert (speed.value, speed.of) == ("100", "warm: 1 replica, global batch 32")


def test_replicas_on_logical_cpus_share_cores(tmp_path):
    run = write_run(tmp_path / "a", replicas=2)
    words = "2 replicas (logical CPUs, shared cores), global batch 64"
    assert headlines_of(run)["Images"].of == f"a: {words}"
    sweep = write_sweep(tmp_path / "s", "throughput", throughput_rows(replicas=(2,)))
    assert "logical CPUs, shared cores" in headlines_of(sweep)["Images"].of


def lines(path):
    table = runs_table(find_sources([str(path)]).runs)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_a_line_of_a_run(tmp_path):
    write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=64)
    (line,) = lines(tmp_path)
    expected = {"Best val. accuracy": "0.9000", "Last": "0.8000", "Images/s": "100"}
    expected |= {"Time to target": "20.0 s", "Total time": "30.5 s", "Status": "complete"}
    expected |= {"Model": "WRN-16-10", "Global batch": "64"}
    assert line | expected == line
    write_run(tmp_path / "b", (0.5,), batch_size=32)
    one, two = lines(tmp_path)
    assert (one["Global batch"], two["Global batch"]) == ("64", "32")
    assert not {"Model", "Optimizer", "Data", "Learning rate"} & set(one)  # all share these
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
    assert len({one.group for one in find_results(find_sources([str(tmp_path)]))}) == 2


@pytest.mark.parametrize("baseline", ["b", "path", None])
def test_settings_are_compared_with_the_baseline(tmp_path, baseline):
    one, two = (write_run(tmp_path / name, width=at) for at, name in enumerate("ab", start=1))
    section = report_of(one, two, baseline=str(two) if baseline == "path" else baseline).sections[
        -1
    ]
    (table,) = section.tables
    assert table.columns == ["Run", "width"]
    assert [row[:2] for row in table.rows] == (
        [["b", "2"], ["a", "1"]] if baseline else [["a", "1"], ["b", "2"]]
    )
    assert section.settings["depth"] == "16"
    assert "width" not in section.settings


@pytest.mark.parametrize(
    ("kind", "rows"), [("throughput", throughput_rows), ("scaling", scaling_rows)]
)
def test_a_sweep_of_logical_cpus_has_a_warning(tmp_path, kind, rows):
    gpus = {"cpu": "x", "devices": ["GPU:0 x", "GPU:1 x"]}
    cores = report_of(write_sweep(tmp_path / "cores", kind, rows()))
    assert "do not measure a speed-up" in cores.sections[0].lead
    for name, machine in (("gpus", gpus), ("unknown", {"devices": None})):
        report = report_of(write_sweep(tmp_path / name, kind, rows(), machine=machine))
        assert "speed-up" not in report.sections[0].lead


@pytest.mark.parametrize("kind", ["throughput", "accuracy", "scaling"])
def test_a_sweep_whose_points_all_failed(tmp_path, kind):
    rows = [{"status": "failed", "error": "out of memory", "batch_size": 8, "replicas": 1}]
    (section,) = report_of(write_sweep(tmp_path / kind, kind, rows)).sections
    assert section.figures == []
    (table,) = section.tables
    assert table.rows == [("p0", "failed: out of memory")]


def test_a_search_among_runs_is_shown(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_search(tmp_path / "runs" / "tune", search_trials())
    report = report_of(tmp_path / "runs")
    assert report.title == "1 search, 1 run"
    assert [one.title for one in report.sections] == ["Search: tune", "Runs", "Settings"]
    section = report.sections[0]
    assert section.lead == (
        "Random search of WRN-10-1 for the highest val_accuracy: 5 trials completed, 1 failed,"
        " 1 unfinished: stopped or still running."
    )
    assert section.settings["tuner"] == "random"
    assert not {"base_lr", "space", "output", "run_dir"} & set(section.settings)
    trials, failures = section.tables
    assert trials.columns == [
        *("Trial", "val_accuracy", "seconds", "epochs", "base_lr", "batch_size", "dropout")
    ]
    assert list(trials.rows[0]) == ["3", "0.9", "13", "3", "0.03", "32", "0.1"]
    assert failures.rows == [("trial 5", "loss was nan after epoch 1")]
    (figure,) = section.figures
    assert len(figure.spec()["concat"]) == 3  # by trial, rate and batch: the dropout did not vary
    outcomes = [row["outcome"] for row in figure.data["trials"]]
    assert outcomes == ["trial"] * 5 + ["failed"]


def test_trials_count_for_the_best_accuracy(tmp_path):
    found = headlines_of(write_search(tmp_path / "tune", search_trials()))
    assert list(found) == ["Best"]
    assert (found["Best"].value, found["Best"].of) == ("0.9000", "tune, trial 3")
    assert found["Best"].certainty.startswith("The best of 5 runs")


def test_a_search_whose_trials_failed_or_that_has_none(tmp_path):
    failed = [trial for trial in search_trials() if trial.get("status") == "FAILED"]
    write_search(tmp_path / "failed", failed)
    write_search(tmp_path / "new", [])
    (tmp_path / "new" / "trials" / "oracle.json").unlink()
    failed, new = report_of(tmp_path).sections
    assert "0 trials completed, 1 failed" in failed.lead
    assert failed.figures[0].png().startswith(b"\x89PNG")
    assert (new.tables, new.figures) == ([], [])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("study.json", "[1]"),
        ("study.json", "{"),
        ("study.json", '{"future": 1}'),
        ("trials/oracle.json", '{"start_order": ["0", "9"]}'),
        ("trials/trial_0/trial.json", "{}"),
    ],
)
def test_a_damaged_search_is_skipped_with_the_reason(tmp_path, file, content):
    write_run(tmp_path / "a")
    search = write_search(tmp_path / "tune", search_trials())
    (search / file).write_text(content)
    ((path, reason),) = find_sources([str(tmp_path)]).skipped
    assert path == str(search)
    assert reason
