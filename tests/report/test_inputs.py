"""What a report is given: found, read, named and compared."""

import pytest
from kdist.errors import UserError
from kdist.report.inputs import (
    differences,
    differing,
    find_sources,
    read_csv_measurements,
    settings_of,
    shared,
)
from kdist.report.tables import diff_table
from kdist.runs.record import read_run
from report_folders import accuracy_rows, scaling_rows, throughput_rows, write_run, write_sweep


def names(records):
    return [record.name for record in records]


def test_a_folder_of_runs_and_what_is_skipped(tmp_path):
    write_run(tmp_path / "b")
    write_run(tmp_path / "a")
    (write_run(tmp_path / "copied") / "config.json").unlink()
    (tmp_path / "photos").mkdir()
    write_sweep(tmp_path / "old", "scaling", scaling_rows(), format=99)
    sources = find_sources([str(tmp_path)])
    assert names(sources.runs) == ["a", "b"]
    reasons = {one.path: one.reason for one in sources.skipped}
    assert list(reasons) == [str(tmp_path / name) for name in ("copied", "old", "photos")]
    assert reasons[str(tmp_path / "copied")] == "incomplete: config.json missing"
    assert "format 99" in reasons[str(tmp_path / "old")]
    assert "not a run folder" in reasons[str(tmp_path / "photos")]


def test_folders_of_folders(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_sweep(tmp_path / "sweeps" / "s", "throughput", throughput_rows())
    (tmp_path / "runs" / "other").mkdir()
    sources = find_sources([str(tmp_path)])
    assert names(sources.runs) == ["a"]
    assert names(sources.sweeps) == ["s"]
    assert [one.path for one in sources.skipped] == [str(tmp_path / "runs" / "other")]


def test_folders_at_any_depth(tmp_path):
    for place in ("a/b/run", "a/c/run", "a/b/d/e/f/last"):
        write_run(tmp_path / place)
    write_sweep(tmp_path / "a" / "b" / "s", "accuracy", accuracy_rows()[:1])
    (tmp_path / "a" / "b" / "run" / "checkpoints").mkdir()
    write_run(tmp_path / "a" / "b" / "run" / "checkpoints" / "copy")  # part of the run
    write_run(tmp_path / ".trash" / "old" / "run")
    (tmp_path / "a" / "none" / "below").mkdir(parents=True)
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "again").symlink_to("c")
    sources = find_sources([str(tmp_path)])
    assert names(sources.runs) == ["last", "b/run", "c/run"]
    assert names(sources.sweeps) == ["s"]
    assert {one.path for one in sources.skipped} == {
        *(str(tmp_path / ".trash"), str(tmp_path / "a" / "none"))
    }
    assert names(find_sources([str(tmp_path), str(tmp_path / "a" / "b")]).runs) == names(
        sources.runs
    )


def test_a_run_at_some_depth_alone(tmp_path):
    run = write_run(tmp_path / "a" / "b" / "run")
    assert [one.path for one in find_sources([str(tmp_path)]).runs] == [run]


def test_a_folder_of_the_name_of_a_link_is_shown_by_its_own(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "best").symlink_to("run")
    assert names(find_sources([str(tmp_path)]).runs) == ["run"]


def test_a_run_named_twice_is_shown_once(tmp_path):
    run = write_run(tmp_path / "a")
    assert names(find_sources([str(run), str(tmp_path), f"{run}/"]).runs) == ["a"]


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [write_run(tmp_path / part) for part in ("x/one", "y/one", "y/two")]
    assert names(find_sources([str(path) for path in paths]).runs) == ["x/one", "y/one", "two"]


def test_a_sweeps_runs_bear_its_name_where_another_is_alike(tmp_path):
    one, two = (
        str(write_sweep(tmp_path / name, "accuracy", accuracy_rows()[:1])) for name in ("s", "t")
    )
    run = str(write_run(tmp_path / "a"))
    assert names(find_sources([run, one]).all_runs) == ["a", "b32-linear-seed0"]
    assert names(find_sources([run, one, two]).all_runs) == [
        "a",
        "s: b32-linear-seed0",
        "t: b32-linear-seed0",
    ]


def test_typed_numbers(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec\n32,100\n")
    (tmp_path / "bad.csv").write_text("batch,speed\n32,100\n")
    sources = find_sources([str(tmp_path / "lab.csv"), str(tmp_path / "bad.csv")])
    assert names(sources.measurements) == ["lab"]
    assert [one.path for one in sources.skipped] == [str(tmp_path / "bad.csv")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no", "cannot read .*no: No such file"),
        ("x" * 300, "cannot read .*x: File name too long"),
        ("a\0b", "cannot read .*: embedded null byte"),
        ("", "nothing to report: .*not a run folder"),
    ],
)
def test_nothing_to_show(tmp_path, name, words):
    with pytest.raises(UserError, match=words):
        find_sources([str(tmp_path / name)])


def test_a_sweep_of_another_version_alone_says_so(tmp_path):
    sweep = write_sweep(tmp_path / "s", "accuracy", [], format=0)
    with pytest.raises(UserError, match="has format 0, this kdist reads 3"):
        find_sources([str(sweep)])


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(UserError, match="cannot read : the path is empty; pass folders of runs"):
        find_sources([""])


def test_a_device_is_no_csv_file():
    with pytest.raises(UserError, match="/dev/zero: not a valid CSV file: .* not a regular file"):
        find_sources(["/dev/zero"])


def read(tmp_path, content):
    path = tmp_path / "lab.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_csv_measurements(path)


@pytest.mark.parametrize(
    "content",
    [
        "batch_size,images_per_sec\n32,100.5\n64,150\n",
        "\ufeffbatch_size , images_per_sec,note\r\n32,100.5,cold\r\n\r\n64, 150,\r\n",
        'images_per_sec,"batch_size",replicas\n100.5,32,1\n150,64,\n',
    ],
)
def test_plain_csv_as_spreadsheets_write_it(tmp_path, content):
    typed = read(tmp_path, content)
    assert typed.name == "lab"
    given = ("batch_size", "images_per_sec", "replicas")
    assert [{name: row[name] for name in given} for row in typed.rows] == [
        {"batch_size": 32.0, "images_per_sec": 100.5, "replicas": 1.0},
        {"batch_size": 64.0, "images_per_sec": 150.0, "replicas": 1.0},
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no column batch_size and images_per_sec"),
        ("batch,images_per_sec\n1,2\n", "no column batch_size"),
        ("batch_size,images_per_sec\n", "no rows of measurements"),
        ("batch_size,images_per_sec\n8,1\n32,fast\n", "line 3: images_per_sec is 'fast'"),
        ("batch_size,images_per_sec\n32,nan\n", "line 2: images_per_sec is 'nan'"),
        ("batch_size,images_per_sec\n-1,5\n", "line 2: batch_size is '-1'"),
        ("batch_size,images_per_sec\n32\n", "line 2: images_per_sec is ''"),
        ("batch_size,images_per_sec,replicas\n32,5,inf\n", "line 2: replicas is 'inf'"),
        (b"batch_size,images_per_sec\n\xff,1\n", "not a valid CSV file"),
    ],
)
def test_what_will_not_do(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        read(tmp_path, content)


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_csv_measurements(tmp_path / "no.csv")


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


def test_values_that_are_not_the_same_in_all():
    settings = [{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]
    assert differing(settings) == ["b", "c"]
    assert shared(settings) == {"a": "1"}
    assert shared([]) == {}


def runs(tmp_path, *widths):
    return [read_run(write_run(tmp_path / f"w{width}", width=width)) for width in widths]


def test_where_files_lie_is_no_setting(tmp_path):
    settings = settings_of(runs(tmp_path, 1)[0])
    assert not {"run_dir", "log_dir", "data_dir"} & set(settings)
    assert settings["replicas"] == "1"  # which the settings left open
    assert settings["version of kdist"] == "0.1.0"


def test_few_runs_stand_side_by_side(tmp_path):
    one, two = runs(tmp_path, 1, 2)
    table = diff_table([one, two], two)
    assert [cell.text for cell in table.columns] == ["Setting", "w2", "w1"]
    assert [[(c.text, c.kind) for c in row] for row in table.rows] == [
        [("width", ""), ("2", ""), ("1", "changed")]
    ]


def test_many_runs_stand_below_each_other(tmp_path):
    several = runs(tmp_path, 1, 2, 3, 4, 5)
    table = diff_table(several, several[0])
    assert [cell.text for cell in table.columns] == ["Run", "width"]
    assert [[cell.text for cell in row] for row in table.rows][1] == ["w2", "2"]


def test_runs_alike_have_no_table(tmp_path):
    one = read_run(write_run(tmp_path / "a"))
    assert diff_table([one, read_run(write_run(tmp_path / "b"))], one) is None
