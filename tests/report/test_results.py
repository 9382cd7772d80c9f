"""Headlines, the table of runs, and the section of a search."""

import json
import math

import pytest
from kdist.report.inputs import find_sources
from kdist.report.page import write_report
from kdist.report.report import make_report
from kdist.report.results import find_results, headlines
from kdist.report.tables import runs_table
from report_folders import (
    accuracy_rows,
    scaling_rows,
    search_trials,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)


def all_headlines(*paths):
    return headlines(find_results(find_sources([str(path) for path in paths])))


def headlines_of(*paths):
    return {one.title.split()[0]: one for one in all_headlines(*paths)}


def test_one_run(tmp_path):
    found = headlines_of(write_run(tmp_path / "a", (0.5, 0.9, 0.88)))
    best = found["Best"]
    assert (best.value, best.of) == ("0.9000", "a, epoch 2")
    # Wilson's interval of 900 right of 1,000, by its closed form.
    z, p, n = 1.959964, 0.9, 1000
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    assert f"{middle - half:.3f} to {middle + half:.3f}" in best.certainty
    assert "The best of its epochs" in best.certainty
    assert found["Images"].value == "100"
    assert found["Images"].certainty == "Median of 2 epochs after the first, 90 to 110."
    assert found["Time"].title == "Time to accuracy above 0.85"
    assert (found["Time"].value, found["Time"].certainty[:7]) == ("20.0 s", "One run")
    assert found["Time"].of == "a: 1 replica, global batch 32"


def test_runs_that_differ_in_seed_are_one_setting(tmp_path):
    quick = [write_run(tmp_path / f"q{seed}", (0.5, 0.9), seed=seed) for seed in range(3)]
    lucky = write_run(tmp_path / "lucky", (0.5, 0.6, 0.95), batch_size=16)
    found = headlines_of(*quick, lucky)
    assert found["Best"].of == "lucky, epoch 3"
    assert "best of 4 runs" in found["Best"].certainty
    assert found["Time"].of.startswith("3 runs like q0: 1 replica, global batch 32")
    assert "3 of 3 runs reached it" in found["Time"].certainty
    assert found["Images"].certainty.startswith("Median of 3 measurements, ")


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


def test_an_accuracy_sweep(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "accuracy", accuracy_rows()))
    assert (found["Best"].value, found["Best"].of) == (
        "0.8950",
        "batch 32, rule linear, seed 0, epoch 3",
    )
    assert found["Time"].value == "29.0 s"  # the median of 30, 29 and 28


def test_a_throughput_sweep_has_a_speed_alone(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "throughput", throughput_rows()))
    assert list(found) == ["Images"]
    # 128 images in 0.05 + 0.256 seconds, and 10 % slower.
    speeds = sorted((128 / 0.306, 128 / 0.306 / 1.1))
    assert found["Images"].value == f"{sum(speeds) / 2:.0f}"
    assert (
        found["Images"].certainty
        == f"Median of 2 measurements, {speeds[0]:.0f} to {speeds[1]:.0f}."
    )


def test_one_timed_epoch_has_no_spread(tmp_path):
    (row,) = throughput_rows(replicas=(1,), batches=(8,), rounds=1)
    row |= {
        "images_per_sec_low": row["images_per_sec"],
        "images_per_sec_high": row["images_per_sec"],
    }
    found = headlines_of(write_sweep(tmp_path / "s", "throughput", [row]))
    assert found["Images"].certainty == "A single measurement."
    row |= {"images_per_sec_low": 1.0}
    found = headlines_of(write_sweep(tmp_path / "t", "throughput", [row]))
    assert found["Images"].certainty == "A point of the sweep, 1 to 121."


def test_repetitions_are_one_headline(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "scaling", scaling_rows()))
    assert found["Images"].of.startswith("2 runs like weak-r4-round1:")


def test_typed_numbers(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec,replicas\n32,100,2\n64,150,2\n")
    found = headlines_of(tmp_path / "lab.csv")
    assert found["Images"].of == "lab: 2 replicas, global batch 128"
    assert found["Images"].certainty == "One number of lab.csv."


@pytest.mark.parametrize("accuracies", [(), (0.0,)])
def test_a_run_that_learned_nothing(tmp_path, accuracies):
    found = headlines_of(write_run(tmp_path / "a", accuracies))
    assert (found["Time"].value, found["Time"].of) == ("not reached", "a")


def test_the_speed_of_a_first_epoch_is_never_the_fastest(tmp_path):
    cold = write_run(tmp_path / "cold", (0.5,), rates=(9000.0,))
    (speed,) = [one for one in all_headlines(cold) if one.title.startswith("Images")]
    assert (speed.title, speed.value) == ("Images per second in the first epoch", "9,000")
    assert speed.certainty.startswith("It includes the tracing of the step")
    warm = write_run(tmp_path / "warm")
    (speed,) = [one for one in all_headlines(cold, warm) if one.title.startswith("Images")]
    assert (speed.value, speed.of) == ("100", "warm: 1 replica, global batch 32")
    other = write_run(tmp_path / "other", (0.6,), width=2)
    assert "Images" not in headlines_of(cold, other)


def test_replicas_on_logical_cpus_share_cores(tmp_path):
    run = write_run(tmp_path / "a", replicas=2)
    assert headlines_of(run)["Images"].of == (
        "a: 2 replicas, logical CPUs that share cores, global batch 64"
    )
    sweep = write_sweep(tmp_path / "s", "throughput", throughput_rows(replicas=(2,)))
    assert "logical CPUs that share cores" in headlines_of(sweep)["Images"].of


def test_a_name_that_says_the_facts_is_not_followed_by_them(tmp_path):
    for minute, replicas in ((10, 1), (11, 2)):
        write_run(tmp_path / f"2026-11-20-10{minute}00", replicas=replicas)
    assert headlines_of(tmp_path)["Time"].of == "1 replica: global batch 32"


def table_of(tmp_path):
    return runs_table(find_sources([str(tmp_path)]).runs)


def lines(table):
    heads = [cell.text for cell in table.columns]
    return [dict(zip(heads, (cell.text for cell in row), strict=True)) for row in table.rows]


def test_results_come_before_settings(tmp_path):
    write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=64)
    heads = [cell.text for cell in table_of(tmp_path).columns]
    assert heads[:7] == [
        *("Run", "Best val. accuracy", "Last", "Images/s", "Time to target", "Total time"),
        "Epochs",
    ]
    assert heads[7:] == [
        *("Status", "Replicas", "Global batch", "Learning rate", "Model", "Optimizer", "Data"),
        "Folder",
    ]
    (line,) = lines(table_of(tmp_path))
    assert (line["Best val. accuracy"], line["Last"], line["Images/s"]) == (
        "0.9000",
        "0.8000",
        "100",
    )
    assert (line["Time to target"], line["Total time"]) == ("20.0 s", "30.5 s")
    assert (line["Model"], line["Global batch"]) == ("WRN-16-10", "64")


def test_settings_that_all_share_are_not_repeated(tmp_path):
    for name, batch in (("a", 16), ("b", 32)):
        write_run(tmp_path / name, batch_size=batch)
    found = lines(table_of(tmp_path))
    assert [line["Global batch"] for line in found] == ["16", "32"]
    assert not {"Model", "Optimizer", "Data", "Learning rate"} & set(found[0])


def test_runs_that_did_not_end_well_are_marked(tmp_path):
    runs = {name: write_run(tmp_path / name) for name in ("done", "killed", "diverged")}
    (runs["killed"] / "summary.json").unlink()
    summary = (runs["diverged"] / "summary.json").read_text()
    marked = summary.replace("{", '{"diverged": {"epoch": 4, "step": 17}, ', 1)
    (runs["diverged"] / "summary.json").write_text(marked)
    write_run(tmp_path / "early")
    for file in ("summary.json", "history.csv"):
        (tmp_path / "early" / file).unlink()
    found = {line["Run"]: line for line in lines(table_of(tmp_path))}
    assert {name: line["Status"] for name, line in found.items()} == {
        "done": "complete",
        "diverged (diverged)": "diverged in epoch 4, step 17",
        "killed (unfinished)": "killed or still running",
        "early (unfinished)": "killed or still running",
    }
    assert found["killed (unfinished)"]["Best val. accuracy"] == "0.9000"
    assert found["killed (unfinished)"]["Total time"] == "30.0 s"
    assert found["early (unfinished)"]["Time to target"] == "\N{EN DASH}"


def test_the_speed_of_a_first_epoch_is_marked(tmp_path):
    write_run(tmp_path / "one", (0.5,))
    table = table_of(tmp_path)
    assert lines(table)[0]["Images/s"] == "50 (first epoch)"
    assert "epochs after the first" not in table.note
    assert "its speed is no measurement" in table.note
    write_run(tmp_path / "three")
    table = table_of(tmp_path)
    assert [line["Images/s"] for line in lines(table)] == ["50 (first epoch)", "100"]
    assert "epochs after the first" in table.note


def test_replicas_that_share_cores_are_marked(tmp_path):
    for replicas in (1, 2):
        write_run(tmp_path / f"r{replicas}", replicas=replicas)
    found = lines(table_of(tmp_path))
    assert [line["Replicas"] for line in found] == ["1", "2, shared cores"]
    gpus = write_run(tmp_path / "r3", replicas=2) / "summary.json"
    gpus.write_text(gpus.read_text().replace("CPU:", "GPU:"))
    assert lines(table_of(tmp_path))[2]["Replicas"] == "2"


def test_replicas_of_several_workers_are_told_from_those_of_one(tmp_path):
    for name in ("together", "alone"):
        write_run(tmp_path / name, replicas=2)
    summary = tmp_path / "together" / "summary.json"
    summary.write_text(summary.read_text().replace("{", '{"workers": 2, ', 1))
    sources = find_sources([str(tmp_path)])
    found = {line["Run"]: line for line in lines(runs_table(sources.runs))}
    assert found["together"]["Replicas"] == "2 of 2 workers, shared cores"
    assert found["alone"]["Replicas"] == "2, shared cores"
    (together,) = (run for run in sources.runs if run.path.name == "together")
    assert together.of_workers == " of 2 workers"
    groups = {result.group for result in find_results(sources)}
    assert len(groups) == 2  # their speeds are not averaged


def report_of(path):
    return make_report(find_sources([str(path)]))


def test_a_search_among_runs_is_shown(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_search(tmp_path / "runs" / "tune", search_trials())
    report = report_of(tmp_path / "runs")
    assert report.title == "1 search and 1 run"
    assert [section.title for section in report.sections] == ["Search tune", "Runs", "Settings"]
    assert report.skipped == []
    section = report.sections[0]
    assert section.lead == (
        "Random search of WRN-10-1 for the highest val_accuracy: 5 trials completed, 1 failed,"
        " 1 unfinished: stopped or still running."
    )
    assert section.settings["tuner"] == "random"
    assert not {"base_lr", "space", "output", "run_dir"} & set(section.settings)


def test_results_of_trials_come_before_their_hyperparameters(tmp_path):
    (section,) = report_of(write_search(tmp_path / "tune", search_trials())).sections
    (table,) = section.results
    assert [cell.text for cell in table.columns] == [
        *("Trial", "val_accuracy", "seconds", "epochs", "base_lr", "batch_size", "dropout")
    ]
    lines = [[cell.text for cell in row] for row in table.rows]
    assert lines[0] == ["3", "0.9", "13", "3", "0.03", "32", "0.1"]
    assert [line[:2] for line in lines[-2:]] == [["5", "failed"], ["6", "running"]]
    (failures,) = section.tables
    assert [[cell.text for cell in row] for row in failures.rows] == [
        ["trial 5", "loss was nan after epoch 1"]
    ]


def test_a_search_is_drawn_as_kdist_tune_draws_it(tmp_path):
    (section,) = report_of(write_search(tmp_path / "tune", search_trials())).sections
    (figure,) = section.figures
    labels = [one.label.split(" (")[0] for one in figure.variants]
    assert labels == ["Trials in order", "base_lr", "batch_size"]  # the dropout did not vary
    assert figure.of == "WRN-10-1"
    against_rate = figure.variants[1].chart.to_dict()["layer"][0]["encoding"]["x"]
    assert against_rate["scale"]["type"] == "log"
    rows = section.data["search-1"]
    assert [row["outcome"] for row in rows] == ["trial"] * 5 + ["failed"]
    assert [row["trial"] for row in rows] == [0, 1, 2, 3, 4, 5]


def test_trials_count_for_the_best_accuracy(tmp_path):
    sources = find_sources([str(write_search(tmp_path / "tune", search_trials()))])
    (best,) = headlines(find_results(sources))
    assert (best.title, best.value) == ("Best validation accuracy", "0.9000")
    assert best.of == "tune, trial 3"
    assert best.certainty.startswith("The best of 5 runs")


def test_a_search_whose_trials_failed_or_that_has_none(tmp_path):
    failed = [trial for trial in search_trials() if trial.get("status") == "FAILED"]
    write_search(tmp_path / "in" / "failed", failed)
    write_search(tmp_path / "in" / "new", [])
    (tmp_path / "in" / "new" / "trials" / "oracle.json").unlink()
    written = write_report([str(tmp_path / "in")], output=str(tmp_path / "report.html"))
    assert [path.name for path in written.pictures] == ["search-1.png"]
    assert "0 trials completed, 1 failed" in written.page.read_text()


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
    (skipped,) = find_sources([str(tmp_path)]).skipped
    assert skipped.path == str(search)
    assert skipped.reason
