import pytest
from kdist.report.inputs import find_sources
from kdist.report.run_names import differences
from report_folders import accuracy_rows, write_run, write_sweep

DATES = [f"2026-11-20-10{minute}00" for minute in range(10, 60)]


def named(tmp_path, *runs):
    """The names of runs whose folders are dates, in order."""
    for date, settings in zip(DATES, runs, strict=False):
        write_run(tmp_path / "runs" / date, **{"width": 1, "depth": 10} | settings)
    return [run.name for run in find_sources([str(tmp_path)]).runs]


def test_a_single_run_is_named_after_model_replicas_and_batch(tmp_path):
    assert named(tmp_path, {"replicas": 2, "batch_size": 64}) == ["WRN-10-1, 2 replicas, batch 64"]


def test_runs_are_named_after_what_differs(tmp_path):
    names = named(
        tmp_path,
        {"batch_size": 64},
        {"batch_size": 64, "replicas": 2},
        {"batch_size": 64, "replicas": 2, "width": 4},
        {"batch_size": 32, "replicas": 2, "width": 4, "optimizer": "adamw"},
    )
    assert names == [
        "WRN-10-1, 1 replica, batch 64",
        "WRN-10-1, 2 replicas, batch 64",
        "WRN-10-4, 2 replicas, batch 64",
        "WRN-10-4, 2 replicas, batch 32, adamw",
    ]


def test_a_setting_that_only_one_run_has_names_it_alone(tmp_path):
    names = named(tmp_path, {}, {"seed": 1}, {}, {"augment": False})
    assert names == [
        "WRN-10-1, 1 replica, batch 32, run 1",
        "seed 1",
        "WRN-10-1, 1 replica, batch 32, run 2",
        "no augment",
    ]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ([{"seed": 0}, {"seed": 1}], ["seed 0", "seed 1"]),
        ([{"base_lr": 0.5}, {"base_lr": 0.01}], ["lr 0.5", "lr 0.01"]),
        ([{"epochs": 3}, {"epochs": 4}], ["3 epochs", "4 epochs"]),
        ([{"momentum": 0.9}, {}], ["momentum 0.9", "no momentum"]),
        ([{"augment": True}, {"augment": False}], ["augment", "no augment"]),
    ],
)
def test_words_of_settings(tmp_path, settings, names):
    assert named(tmp_path, *settings) == names


def test_a_name_that_the_user_gave_stays(tmp_path):
    write_run(tmp_path / "runs" / "mine", batch_size=64)
    assert named(tmp_path, {"batch_size": 16}) == ["WRN-10-1, batch 16", "mine"]


def test_names_say_how_a_run_ended(tmp_path):
    killed, whole = (write_run(tmp_path / "runs" / name) for name in ("a", DATES[0]))
    (killed / "summary.json").unlink()
    names = [run.name for run in find_sources([str(tmp_path)]).runs]
    assert names == ["WRN-16-10, 1 replica, batch 32", "a (unfinished)"]
    assert whole.exists()


def test_what_a_killed_run_did_not_write_is_no_difference(tmp_path):
    for date, batch in zip(DATES, (16, 32), strict=False):
        write_run(tmp_path / "runs" / date, batch_size=batch)
    killed = tmp_path / "runs" / DATES[1]
    (killed / "summary.json").unlink()
    (killed / "history.csv").unlink()
    names = [run.name for run in find_sources([str(tmp_path)]).runs]
    assert names == ["batch 16", "batch 32 (unfinished)"]


def test_all_that_differs_is_named_where_it_takes_all_to_tell_runs_apart():
    settings = [{"a": str(a), "b": str(b), "c": "0"} for a in range(2) for b in range(2)]
    assert differences(settings) == ["a 0, b 0", "a 0, b 1", "a 1, b 0", "a 1, b 1"]


def test_sweeps_are_named_after_kind_and_model_and_their_runs_after_the_setting(tmp_path):
    for name, kind in (("sweep-2026-11-20-101112", "accuracy"), ("mine", "throughput")):
        rows = accuracy_rows() if kind == "accuracy" else []
        write_sweep(tmp_path / "in" / name, kind, rows, settings={"train": {"width": 2}})
    sources = find_sources([str(tmp_path)])
    assert [sweep.name for sweep in sources.sweeps] == ["mine", "accuracy sweep of WRN-16-2"]
    names = [run.name for run in sources.all_runs]
    assert names[0] == "batch 128, rule linear, seed 0"
    assert len(set(names)) == len(names) == 18


def test_sweeps_of_one_kind_and_model_are_numbered(tmp_path):
    for minute in (10, 11):
        write_sweep(tmp_path / f"sweep-2026-11-20-10{minute}00", "scaling", [])
    sources = find_sources([str(tmp_path)])
    assert [sweep.name for sweep in sources.sweeps] == [
        "scaling sweep of WRN-10-10 (1)",
        "scaling sweep of WRN-10-10 (2)",
    ]
