import pytest
from fake_runs import FakeRuns, done_row, run
from kdist.charts.figures import accuracy_figures
from kdist.study.sweep_kinds import AccuracySweep


def accuracy(**values):
    settings = {
        "train": {"target_accuracy": 0.8, "optimizer": "adam"},
        "batch_sizes": [32, 128],
        "lr_rules": ["linear", "sqrt", "auto"],
        "replicas": [2],
        "base_lr": 0.01,
        "base_batch": 32,
        "seeds": 3,
    }
    return AccuracySweep(**{**settings, **values})


def test_the_rate_follows_the_global_batch_by_each_rule():
    points = {point.name: point for point in accuracy().points()}
    assert len(points) == 2 * 3 * 3
    rates = {
        name: points[f"b128-r2-{name}-seed1"].config["base_lr"]
        for name in ("linear", "sqrt", "auto")
    }
    assert rates == pytest.approx({"linear": 0.08, "sqrt": 0.01 * 8**0.5, "auto": 0.01 * 8**0.5})
    one = points["b32-r2-linear-seed2"]
    assert one.config["lr_rule"] == "none"
    assert (one.config["seed"], one.axes["seed"], one.axes["global_batch"]) == (2, 2, 64)
    assert one.config["noise_scale"] is True


def rows_of(experiment, outcomes):
    """Rows with seconds to the target, or `None` for a run given up after 100 seconds."""
    rows = []
    for point in experiment.points():
        seconds = outcomes[point.axes["batch_size"]][point.axes["seed"]]
        there = seconds is not None
        rows.append(
            done_row(
                point,
                AccuracySweep,
                seconds=seconds + 5 if there else 100.0,
                epochs=9 if there else 10,
                reached_target=there,
                seconds_to_target=seconds,
                epochs_to_target=8 if there else None,
                best_val_accuracy=0.85 if there else 0.5,
                noise_scale=300.0 if there else 10.0,
                run_dir=f"points/{point.name}/run",
            )
        )
    return rows


def test_a_run_that_diverged_early_counts_as_one_that_never_reaches_the_target():
    """Taken for one that was given up after 5 seconds, it would say nothing of the later ones."""
    experiment = accuracy(lr_rules=["linear"], batch_sizes=[32])
    rows = rows_of(experiment, {32: [30.0, 50.0, None]})
    lost = {"diverged": True, "seconds": 5.0, "epochs": 0, "best_val_accuracy": None}
    measured = experiment.summarize([*rows[:2], rows[2] | lost], experiment.settings)
    given_up = experiment.summarize(rows, experiment.settings)
    (group,) = measured["groups"]
    for unit in ("seconds_to_target", "epochs_to_target"):
        assert group[unit] == given_up["groups"][0][unit]
    (table,) = experiment.tables(measured)
    assert "2 of 3, 1 diverged" in table.rows[0]
    (figure,) = accuracy_figures([*rows[:2], rows[2] | lost], measured)
    assert [row["seconds"] for row in figure.data["points"]] == [30, 50, None]


def test_runs_that_never_reached_the_target_count_as_such():
    experiment = accuracy(lr_rules=["linear"])
    rows = rows_of(experiment, {32: [30.0, 50.0, None], 128: [20.0, None, None]})
    measured = experiment.summarize(rows, experiment.settings)
    few, many = measured["groups"]
    assert (few["global_batch"], few["reached"], few["runs"]) == (64, 2, 3)
    assert few["seconds_to_target"]["median"] == 50  # the third takes longer than 100
    assert few["seconds_to_target"]["low"] == 30
    assert few["seconds_to_target"]["high"] is None
    assert many["seconds_to_target"]["median"] is None
    assert many["epochs_to_target"]["median"] is None
    assert few["best_val_accuracy"] == {"median": 0.85, "low": 0.5, "high": 0.85}
    # Of the runs that learned.
    assert measured["critical_batch"] == {"median": 300, "low": 300, "high": 300}


def test_tables_and_charts(here):
    experiment = accuracy(lr_rules=["linear", "none"])
    rows = {r["name"]: r for r in rows_of(experiment, {32: [30.0, 50.0, 40.0], 128: [None] * 3})}
    runs = FakeRuns()
    runs.at = rows
    runs.at["b32-r2-none-seed0"] = {"status": "failed", "error": "ValueError: no"}
    code, out = run(runs, experiment, output="out")
    assert code == 0
    assert "40.0 (30.0 or more)" in out
    assert "more than half never" in out
    assert "0 of 3" in out
    assert "Critical batch by the gradient noise scale: 300 (300 to 300) images" in out
    assert "Failed: b32-r2-none-seed0: ValueError: no" in out
    (chart,) = (here / "out").glob("*.png")
    assert chart.name == "accuracy.png"
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_without_a_run_that_ended_there_is_no_chart(here):
    experiment = accuracy(lr_rules=["linear"], seeds=1)
    runs = FakeRuns()
    runs.at = {p.name: {"status": "failed", "error": "no"} for p in experiment.points()}
    code, out = run(runs, experiment)
    assert code == 1
    assert "Chart" not in out
    assert "Critical batch" not in out
