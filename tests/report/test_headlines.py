import math

import pytest
from kdist.report.headlines import headlines
from kdist.report.inputs import find_sources
from kdist.report.results import find_results
from report_folders import accuracy_rows, scaling_rows, throughput_rows, write_run, write_sweep


def headlines_of(*paths):
    found = headlines(find_results(find_sources([str(path) for path in paths])))
    return {one.title.split()[0]: one for one in found}


def test_one_run(tmp_path):
    found = headlines_of(write_run(tmp_path / "a", (0.5, 0.9, 0.88)))
    best = found["Best"]
    assert (best.value, best.of) == ("0.9000", "a, epoch 2")
    # Wilson's interval of 900 right of 1,000, by its closed form.
    z, p, n = 1.959964, 0.9, 1000
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    assert f"{middle - half:.3f} to {middle + half:.3f}" in best.sure
    assert "flatters" in best.sure
    assert found["Images"].value == "100"
    assert found["Images"].sure == "Median of 2 epochs after the first, 90 to 110."
    assert found["Time"].title == "Time to accuracy above 0.85"
    assert (found["Time"].value, found["Time"].sure[:7]) == ("20.0 s", "One run")


def test_runs_that_differ_in_seed_are_one_setting(tmp_path):
    quick = [write_run(tmp_path / f"q{seed}", (0.5, 0.9), seed=seed) for seed in range(3)]
    lucky = write_run(tmp_path / "lucky", (0.5, 0.6, 0.95), batch_size=16)
    found = headlines_of(*quick, lucky)
    assert found["Best"].of == "lucky, epoch 3"
    assert "best of 4 runs" in found["Best"].sure
    assert found["Time"].of.startswith("3 runs like q0: 1 replica, global batch 32")
    assert "3 of 3 runs got there" in found["Time"].sure
    assert found["Images"].sure.startswith("Median of 3 measurements, ")


def test_runs_that_never_got_there_count_as_such(tmp_path):
    one = write_run(tmp_path / "a", (0.5, 0.9), seed=0)
    others = [write_run(tmp_path / f"o{seed}", (0.5, 0.6), seed=seed) for seed in (1, 2)]
    found = headlines_of(one, *others)
    assert (found["Time"].value, found["Time"].of) == ("not reached", "1 of 3 runs got there")


def test_times_to_different_targets_are_not_compared(tmp_path):
    easy = write_run(tmp_path / "easy", (0.5, 0.6), target_accuracy=0.4)
    hard = [write_run(tmp_path / f"h{n}", (0.5, 0.9), width=n) for n in (1, 2)]
    assert headlines_of(easy, *hard)["Time"].title == "Time to accuracy above 0.85"


def test_an_accuracy_sweep(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "accuracy", accuracy_rows()))
    assert (found["Best"].value, found["Best"].of) == ("0.8950", "b32-linear-seed0, epoch 3")
    assert found["Time"].value == "29.0 s"  # the median of 30, 29 and 28


def test_a_throughput_sweep_has_a_speed_alone(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "throughput", throughput_rows()))
    assert list(found) == ["Images"]
    # 128 images in 0.05 + 0.256 seconds, and 10 % slower.
    speeds = sorted((128 / 0.306, 128 / 0.306 / 1.1))
    assert found["Images"].value == f"{sum(speeds) / 2:.0f}"
    assert found["Images"].sure == f"Median of 2 measurements, {speeds[0]:.0f} to {speeds[1]:.0f}."


def test_one_timed_epoch_has_no_spread(tmp_path):
    (row,) = throughput_rows(replicas=(1,), batches=(8,), rounds=1)
    row |= {
        "images_per_sec_low": row["images_per_sec"],
        "images_per_sec_high": row["images_per_sec"],
    }
    found = headlines_of(write_sweep(tmp_path / "s", "throughput", [row]))
    assert found["Images"].sure == "A single measurement."
    row |= {"images_per_sec_low": 1.0}
    found = headlines_of(write_sweep(tmp_path / "t", "throughput", [row]))
    assert found["Images"].sure == "A point of the sweep, 1 to 121."


def test_a_step_with_a_part_left_out_is_no_headline(tmp_path):
    found = headlines_of(write_sweep(tmp_path / "s", "scaling", scaling_rows()))
    assert found["Images"].of.startswith("2 runs like weak-r4-round1-0:")


def test_typed_numbers(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec,replicas\n32,100,2\n64,150,2\n")
    found = headlines_of(tmp_path / "lab.csv")
    assert found["Images"].of == "lab: 2 replicas, global batch 128"
    assert found["Images"].sure == "One number, as typed in."


@pytest.mark.parametrize("accuracies", [(), (0.0,)])
def test_a_run_that_learned_nothing(tmp_path, accuracies):
    found = headlines_of(write_run(tmp_path / "a", accuracies))
    assert (found["Time"].value, found["Time"].of) == ("not reached", "a")
