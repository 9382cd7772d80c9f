"""The kinds of sweeps: what holds for each, and what each measures."""

import math

import pytest
from fake_runs import MACHINE, FakeRuns, done_row, run, throughput
from kdist.errors import UserError
from kdist.study.experiment import POINT_COLUMNS
from kdist.study.study_folder import StudyFolder, StudyInfo
from kdist.study.sweep_kinds import AccuracySweep, ScalingSweep, ThroughputSweep
from kdist.study.sweep_run import check_experiment
from kdist.study.tables import Spread


def accuracy(**values):
    settings = {
        "train": {"dataset": "sample", "target_accuracy": 0.8, "optimizer": "adam"},
        "batch_sizes": [32, 128],
        "lr_rules": ["linear", "sqrt", "auto"],
        "replicas": [2],
        "base_lr": 0.01,
        "base_batch": 32,
        "seeds": 3,
    }
    return AccuracySweep(**{**settings, **values})


def scaling(**values):
    train = {"dataset": "sample"}
    settings = {"train": train, "batch_size": 64, "global_batch": 128, "replicas": [1, 2]}
    settings |= {"modes": ["weak", "strong"], "epochs": 3, "rounds": 3}
    return ScalingSweep(**{**settings, **values})


def experiments():
    return [throughput(), accuracy(seeds=2, replicas=[1, 2]), scaling(rounds=2)]


def finished_rows(experiment):
    extra = {"reached_target": True, "seconds_to_target": 0.5, "epochs_to_target": 2}
    extra |= {"best_val_accuracy": 0.9}
    return [done_row(point, **extra) for point in experiment.make_points()]


@pytest.fixture(params=experiments(), ids=lambda kind: kind.kind)
def experiment(request):
    return request.param


def test_columns_are_declared(experiment):
    assert {*experiment.setting_columns, *experiment.required_columns} <= {*POINT_COLUMNS}
    for point in experiment.make_points():
        assert list(point.columns) == list(POINT_COLUMNS)


def test_settings_are_the_fields(experiment):
    again = type(experiment)(**experiment.settings)
    assert again == experiment


def test_every_column_and_chart_is_a_result(experiment):
    summary = experiment.summarize(finished_rows(experiment))
    assert len(summary) == len(experiment.make_round(0))
    table = experiment.table(summary, experiment.settings)
    assert all(all(row) for row in table.rows)
    for row in summary:
        assert experiment.axis[0] in row
        assert all(isinstance(row[name], Spread) for name in experiment.charts)
    assert experiment.summarize([]) == []


def test_a_sweep_of_a_model_that_has_changed_is_another(tmp_path):
    """Its points would be of two models."""
    file, output = tmp_path / "mine.py", tmp_path / "sweep"
    file.write_text("first")
    other = tmp_path / "other.py"
    other.write_text("data")

    def opened():
        train = {"model": f"{file}:build", "data": f"{other}:data"}
        options = {"batch_sizes": [8], "replicas": [1], "epochs": 2, "rounds": 1}
        made = ThroughputSweep(train=train, **options)
        assert "mine.py" not in made.describe()
        with StudyFolder(output).open(StudyInfo(kind=made.kind, settings=made.settings)) as resumed:
            return resumed

    assert [opened(), opened()] == [False, True]
    other.write_text("more data")
    with pytest.raises(UserError, match=r"contains another study: .*other\.py has changed;"):
        opened()
    other.write_text("data")
    assert opened()


# Accuracies


def test_the_rate_follows_the_global_batch_by_each_rule():
    points = {point.name: point for point in accuracy().make_points()}
    assert len(points) == 2 * 3 * 3
    rates = {
        name: points[f"b128-r2-{name}-seed1"].config["base_lr"]
        for name in ("linear", "sqrt", "auto")
    }
    assert rates == pytest.approx({"linear": 0.08, "sqrt": 0.01 * 8**0.5, "auto": 0.01 * 8**0.5})
    one = points["b32-r2-linear-seed2"]
    assert one.config["lr_rule"] == "none"
    assert (one.config["seed"], one.columns["seed"], one.columns["global_batch"]) == (2, 2, 64)


def accuracy_rows(experiment, outcomes):
    """Rows with seconds to the target, or `None` for a run given up after 100 seconds."""
    rows = []
    for point in experiment.make_points():
        seconds = outcomes[point.columns["batch_size"]][point.columns["seed"]]
        there = seconds is not None
        rows.append(
            done_row(
                point,
                seconds=seconds + 5 if there else 100.0,
                epochs=9 if there else 10,
                reached_target=there,
                seconds_to_target=seconds,
                epochs_to_target=8 if there else None,
                best_val_accuracy=0.85 if there else 0.5,
                run_dir=f"points/{point.name}/run",
            )
        )
    return rows


def test_a_run_that_diverged_early_counts_as_one_that_never_reaches_the_target():
    """Taken for one that was given up after 5 seconds, it would say nothing of the later ones."""
    experiment = accuracy(lr_rules=["linear"], batch_sizes=[32])
    rows = accuracy_rows(experiment, {32: [30.0, 50.0, None]})
    lost = {"diverged": True, "seconds": 5.0, "epochs": 0, "best_val_accuracy": None}
    (group,) = measured = experiment.summarize([*rows[:2], rows[2] | lost])
    (given_up,) = experiment.summarize(rows)
    for unit in ("seconds", "epochs"):
        assert group[unit] == given_up[unit]
    assert "2 of 3, 1 diverged" in experiment.table(measured, experiment.settings).rows[0]
    assert group["seconds"].median == 50


def test_runs_that_never_reached_the_target_count_as_such():
    experiment = accuracy(lr_rules=["linear"])
    rows = accuracy_rows(experiment, {32: [30.0, 50.0, None], 128: [20.0, None, None]})
    few, many = experiment.summarize(rows)
    assert (few["global_batch"], few["reached"]) == (64, "2 of 3")
    assert few["seconds"] == Spread(50, 30, math.inf)  # the third takes longer than 100
    assert many["seconds"].median == many["epochs"].median == math.inf
    assert few["accuracy"] == Spread(0.85, 0.5, 0.85)


def test_a_table_of_accuracies(here):
    experiment = accuracy(lr_rules=["linear", "none"])
    rows = {
        r["name"]: r for r in accuracy_rows(experiment, {32: [30.0, 50.0, 40.0], 128: [None] * 3})
    }
    runs = FakeRuns()
    runs.at = rows
    runs.at["b32-r2-none-seed0"] = {"error": "ValueError: no"}
    code, out = run(runs, experiment, output="out")
    assert code == 0
    assert "40.0 (30.0-50.0)" in out
    assert "Time to target: validation accuracy above 0.8" in out
    assert "never" in out
    assert "0 of 3" in out
    assert "Failed: b32-r2-none-seed0: ValueError: no" in out


# Scaling


def test_the_same_batch_a_replica_or_the_same_global_batch():
    points = scaling(rounds=1).make_points()
    batches = {
        (p.columns["mode"], p.columns["replicas"]): (
            p.config["batch_size"],
            p.columns["global_batch"],
        )
        for p in points
    }
    assert batches == {
        ("weak", 1): (64, 64),
        ("weak", 2): (64, 128),
        ("strong", 1): (128, 128),
        ("strong", 2): (64, 128),
    }
    names = [p.name for p in points if p.columns["mode"] == "weak"]
    assert names == ["weak-r1-round1", "weak-r2-round1"]
    for point in points:  # nothing but the steps is in an epoch, on any number of replicas
        assert (point.config["validate"], point.config["save_model"]) == (False, False)


@pytest.mark.parametrize(
    ("settings", "xla"),
    [
        ({"replicas": [1, 2]}, False),  # by default one GPU has it and several do not
        ({"replicas": [1, 2], "train": {"xla": None}}, False),
        ({"replicas": [1, 2], "train": {"xla": True}}, True),
        ({"replicas": [2]}, None),
        ({"replicas": [1], "train": {"xla": None}}, None),
    ],
)
def test_all_points_are_compiled_alike(settings, xla):
    assert {point.config.get("xla") for point in scaling(**settings).make_points()} == {xla}


# Seconds of a step of 64 images on one replica, and what comes to it on two.
ALONE, TOGETHER = 0.45, 0.1
DRIFT = {1: 1.0, 2: 2.0, 3: 1.5}  # a machine that is slower in some rounds


def scaling_rows(experiment):
    rows = []
    for point in experiment.make_points():
        axes = point.columns
        seconds = ALONE * axes["batch_size"] / 64 + TOGETHER * (axes["replicas"] > 1)
        rate = axes["global_batch"] / (seconds * DRIFT[axes["round"]])
        rows.append(done_row(point, images_per_sec=rate))
    return rows


def numbers(spread):
    return [spread.median, spread.low, spread.high]


def test_efficiency_is_that_of_a_round():
    measured = scaling().summarize(scaling_rows(scaling()))
    points = {(row["mode"], row["replicas"]): row for row in measured}
    weak = points["weak", 2]
    efficiency = 0.45 / 0.55  # drift cancels
    assert numbers(weak["efficiency"]) == pytest.approx([efficiency] * 3)
    assert numbers(weak["milliseconds"]) == pytest.approx([825, 550, 1100])
    strong = points["strong", 2]
    assert strong["efficiency"].median == pytest.approx(0.9 / (2 * 0.55))
    for mode in ("weak", "strong"):
        assert points[mode, 1]["efficiency"].median == 1


def test_what_is_missing_is_not_made_up():
    rows = scaling_rows(scaling())
    for row in rows:
        if row["replicas"] == 1:
            row |= {"status": "failed", "error": "no"}
    measured = ScalingSweep.summarize([row for row in rows if row["status"] == "done"])
    assert {row["replicas"] for row in measured} == {2}
    assert {row["efficiency"].median for row in measured} == {1}


@pytest.mark.parametrize(
    ("machine", "shared"), [(MACHINE, True), (MACHINE | {"devices": ["GPU:0 x", "GPU:1 x"]}, False)]
)
def test_shared_cores_are_warned_of(here, machine, shared):
    experiment = scaling()
    runs = FakeRuns()
    runs.at = {row["name"]: row for row in scaling_rows(experiment)}
    code, out = run(runs, experiment, machine=machine, output="out")
    assert code == 0
    assert ("Warning: Replicas are logical CPUs that share" in out) is shared
    assert "0.82" in out


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": [1, 2, 3]}, "128 cannot be divided evenly among 3 replicas.*multiple of 6"),
        ({"epochs": 1}, "epochs has to be from 2 to"),
        (
            {"train": {"dataset": "sample", "subset": 100}},
            "a global batch of 128 needs more than the 100 training images",
        ),
    ],
)
def test_a_scaling_that_would_mislead_is_refused(values, words):
    with pytest.raises(UserError, match=words):
        check_experiment(scaling(**values))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("0", [1]), ("0,1,2,3", [1, 2, 4]), ("0,1,2,3,4,5", [1, 2, 4, 6]), ("", [1, 2])],
)
def test_by_default_counts_of_replicas_up_to_every_gpu(monkeypatch, gpus, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    assert ScalingSweep(train={}, modes=["weak"]).replicas == expected
