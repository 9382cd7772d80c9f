import json
import math

import pytest
from kdist.report.compared_results import find_results
from kdist.report.headlines import headlines
from kdist.report.inputs import find_sources
from report_folders import accuracy_rows, scaling_rows, throughput_rows, write_run, write_sweep


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
