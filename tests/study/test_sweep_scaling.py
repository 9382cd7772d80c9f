import pytest
from fake_runs import MACHINE, FakeRuns, done_row, run
from kdist.charts.statistics import done
from kdist.errors import UserError
from kdist.study.sweep_experiment import replica_counts, shared_cores_warning
from kdist.study.sweep_kinds import ScalingSweep


def scaling(**values):
    settings = {"train": {}, "batch_size": 64, "global_batch": 128, "replicas": [1, 2]}
    settings |= {"modes": ["weak", "strong"], "epochs": 3, "rounds": 3}
    return ScalingSweep(**{**settings, **values})


def test_the_same_batch_a_replica_or_the_same_global_batch():
    points = scaling(rounds=1).points()
    batches = {
        (p.axes["mode"], p.axes["replicas"]): (p.config["batch_size"], p.axes["global_batch"])
        for p in points
    }
    assert batches == {
        ("weak", 1): (64, 64),
        ("weak", 2): (64, 128),
        ("strong", 1): (128, 128),
        ("strong", 2): (64, 128),
    }
    names = [p.name for p in points if p.axes["mode"] == "weak"]
    assert names == ["weak-r1-round1", "weak-r2-round1"]
    for point in points:  # nothing but the steps is in an epoch, on any number of replicas
        assert (point.config["validate"], point.config["save_model"]) == (False, False)


@pytest.mark.parametrize(
    ("train", "replicas", "xla"),
    [
        ({}, [1, 2], False),  # by default one GPU has it and several do not
        ({"xla": None}, [1, 2], False),
        ({"xla": True}, [1, 2], True),
        ({}, [2], None),
        ({"xla": None}, [1], None),
    ],
)
def test_all_points_are_compiled_alike(train, replicas, xla):
    assert {p.config.get("xla") for p in scaling(train=train, replicas=replicas).points()} == {xla}


# Seconds of a step of 64 images on one replica, and what comes to it on two.
ALONE, TOGETHER = 0.45, 0.1
DRIFT = {1: 1.0, 2: 2.0, 3: 1.5}  # a machine that is slower in some rounds


def rows_of(experiment):
    rows = []
    for point in experiment.points():
        axes = point.axes
        seconds = ALONE * axes["batch_size"] / 64 + TOGETHER * (axes["replicas"] > 1)
        rate = axes["global_batch"] / (seconds * DRIFT[axes["round"]])
        rows.append(done_row(point, ScalingSweep, images_per_sec=rate))
    return rows


def test_efficiency_is_that_of_a_round():
    measured = scaling().summarize(rows_of(scaling()), {})
    points = {(one["mode"], one["replicas"]): one for one in measured["points"]}
    weak = points["weak", 2]
    efficiency = 0.45 / 0.55  # drift cancels
    assert weak["efficiency"] == pytest.approx(dict.fromkeys(("median", "low", "high"), efficiency))
    assert weak["step_seconds"] == pytest.approx({"median": 0.825, "low": 0.55, "high": 1.1})
    strong = points["strong", 2]
    assert strong["efficiency"]["median"] == pytest.approx(0.9 / (2 * 0.55))
    for mode in ("weak", "strong"):
        assert points[mode, 1]["efficiency"]["median"] == 1


def test_what_is_missing_is_not_made_up():
    rows = rows_of(scaling())
    for row in rows:
        if row["replicas"] == 1:
            row |= {"status": "failed", "error": "no"}
    measured = ScalingSweep.summarize(done(rows), {})
    assert measured["base_replicas"] == 2
    assert {one["replicas"] for one in measured["points"]} == {2}


@pytest.mark.parametrize(
    ("machine", "shared"), [(MACHINE, True), (MACHINE | {"devices": ["GPU:0 x", "GPU:1 x"]}, False)]
)
def test_shared_cores_are_warned_of(here, machine, shared):
    experiment = scaling()
    runs = FakeRuns()
    runs.at = {row["name"]: row for row in rows_of(experiment)}
    code, out = run(runs, experiment, machine=machine, output="out")
    assert code == 0
    assert ("Warning: Replicas are logical CPUs that share" in out) is shared
    assert "0.82 (0.82 to 0.82)" in out
    assert (here / "out" / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_one_round_has_no_spread(here):
    experiment = scaling(rounds=1)
    runs = FakeRuns()
    runs.at = {row["name"]: row for row in rows_of(experiment)}
    code, out = run(runs, experiment, output="out")
    assert code == 0
    assert "0.82" in out
    assert "?" not in out
    assert (here / "out" / "scaling.png").exists()


def test_one_replica_alone_warrants_no_warning():
    assert shared_cores_warning(MACHINE, [{"replicas": 1, "workers": 1}]) is None
    for replicas, workers, words in (
        (2, 1, "Replicas are logical CPUs that share this machine's cores: these figures do not"),
        (4, 2, "the overhead of a step on several replicas"),
        (2, 2, "Workers are processes that share this machine's cores"),
    ):
        row = {"replicas": replicas, "workers": workers}
        assert words in shared_cores_warning(MACHINE, [row])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replicas": [1, 2, 3]}, "128 cannot be divided evenly among 3 replicas.*multiple of 6"),
        ({"epochs": 1}, "epochs has to be from 2 to"),
        ({"train": {"subset": 100}}, "does not fill a global batch of 128"),
    ],
)
def test_what_would_mislead_is_refused(values, words):
    with pytest.raises(UserError, match=words):
        scaling(**values)


def test_counts_of_replicas_up_to_every_gpu():
    for gpus, expected in ((1, [1]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])):
        assert replica_counts({"devices": [f"GPU:{index} x" for index in range(gpus)]}) == expected
    assert replica_counts(MACHINE) == [1, 2]
