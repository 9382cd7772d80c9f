"""Runs, sweeps and searches of a report: found, read, named and compared."""

import pytest
from kdist.errors import UserError
from kdist.report.find_records import compare_settings, find_records, name_data_set
from report_folders import accuracy_rows, scaling_rows, write_run, write_sweep


def names(records):
    return [record.name for record in records]


def test_a_folder_of_runs_and_what_is_skipped(tmp_path):
    write_run(tmp_path / "b")
    write_run(tmp_path / "a")
    (write_run(tmp_path / "copied") / "config.json").unlink()
    with (write_run(tmp_path / "edited") / "history.csv").open("a") as history:
        history.write("1" + ",1" * 99 + "\n")
    write_sweep(tmp_path / "old", "scaling", scaling_rows(), format=99)
    sources = find_records([str(tmp_path)])
    assert names(sources.runs) == ["a", "b"]
    reasons = dict(sources.skipped)
    assert list(reasons) == [str(tmp_path / name) for name in ("copied", "edited", "old")]
    assert reasons[str(tmp_path / "copied")] == "incomplete: config.json missing"
    assert "format 99" in reasons[str(tmp_path / "old")]


def test_folders_at_any_depth(tmp_path):
    for place in ("a/b/run", "a/c/run", "a/b/d/e/f/last"):
        write_run(tmp_path / place)
    write_sweep(tmp_path / "a" / "b" / "s", "accuracy", accuracy_rows()[:1])
    (tmp_path / "a" / "b" / "run" / "checkpoints").mkdir()
    write_run(tmp_path / "a" / "b" / "run" / "checkpoints" / "copy")  # part of the run
    write_run(tmp_path / ".trash" / "old" / "run")
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path)
    sources = find_records([str(tmp_path)])
    assert names(sources.runs) == ["last", "b/run", "b32-linear-seed0", "c/run"]
    assert names(sources.sweeps) == ["s"]
    assert names(find_records([str(tmp_path), str(tmp_path / "a" / "b")]).runs) == names(
        sources.runs
    )


def test_a_run_named_twice_is_shown_once(tmp_path):
    run = write_run(tmp_path / "a")
    assert names(find_records([str(run), str(tmp_path), f"{run}/"]).runs) == ["a"]


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [write_run(tmp_path / part) for part in ("x/one", "y/one", "y/two")]
    assert names(find_records([str(path) for path in paths]).runs) == ["x/one", "y/one", "two"]


def test_a_sweeps_runs_have_the_names_of_their_points(tmp_path):
    one, two = (
        str(write_sweep(tmp_path / name, "accuracy", accuracy_rows()[:1])) for name in ("s", "t")
    )
    run = str(write_run(tmp_path / "a"))
    sources = find_records([run, one])
    assert names(sources.runs) == ["a", "b32-linear-seed0"]
    sources = find_records([run, one, two])
    assert names(sources.runs) == [
        "a",
        "s/points/b32-linear-seed0",
        "t/points/b32-linear-seed0",
    ]


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
        find_records([str(tmp_path / name)])


def test_a_file_is_no_run(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec\n32,100\n")
    with pytest.raises(UserError, match="nothing to report: .*lab.csv: not a run folder"):
        find_records([str(tmp_path / "lab.csv")])
    run = write_run(tmp_path / "a")
    sources = find_records([str(run), str(tmp_path / "lab.csv")])
    assert names(sources.runs) == ["a"]
    assert [path for path, _ in sources.skipped] == [str(tmp_path / "lab.csv")]


DATES = [f"2026-11-20-10{minute}00" for minute in range(10, 60)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([{"seed": 0}, {"seed": 1}], ["seed 0", "seed 1"]),
        ([{"width": 1}, {"width": 2}], ["model WRN-10-1, width 1", "model WRN-10-2, width 2"]),
        ([{"momentum": 0.9}, {}], ["momentum 0.9", "momentum \N{EN DASH}"]),
        (
            [{"batch_size": 8}, {"batch_size": 8, "replicas": 2}],
            ["replicas 1", "replicas 2"],
        ),
        ([{}], [""]),
    ],
)
def test_dated_folders_have_the_settings_that_differ_in_their_names(tmp_path, settings, words):
    dated = DATES[: len(settings)]
    for date, own in zip(dated, settings, strict=True):
        write_run(tmp_path / date, **{"width": 1, "depth": 10} | own)
    expected = [
        f"{date}: {word}" if word else date for date, word in zip(dated, words, strict=True)
    ]
    assert names(find_records([str(tmp_path)]).runs) == expected


def test_a_name_that_the_user_gave_stays_and_says_how_a_run_ended(tmp_path):
    killed = write_run(tmp_path / "mine", batch_size=64)
    (killed / "summary.json").unlink()
    write_run(tmp_path / DATES[0], batch_size=16)
    assert names(find_records([str(tmp_path)]).runs) == [
        f"{DATES[0]}: batch size 16",
        "mine (unfinished)",
    ]


def test_settings_that_differ_are_compared_but_not_where_files_lie(tmp_path):
    write_run(tmp_path / "a", width=1, log_dir="logs")
    write_run(tmp_path / "b", width=1, momentum=0.9)
    runs = find_records([str(tmp_path)]).runs
    assert compare_settings(runs) == [{"momentum": "\N{EN DASH}"}, {"momentum": "0.9"}]
    assert compare_settings(runs[:1]) == [{}]
    assert compare_settings([]) == []


def test_the_data_set_of_a_run():
    assert name_data_set({"dataset": "cifar10"}) == "cifar10"
    assert name_data_set({"dataset": "sample"}) == "the embedded sample"
    assert (
        name_data_set({"dataset": "fashion_mnist"}, "the embedded sample") == "the embedded sample"
    )
    own = {"dataset": "fashion_mnist", "model": "a/mine.py:build", "data": "signs"}
    assert name_data_set(own) == "signs() of a/mine.py"
    assert name_data_set(own | {"data": None}) == "data() of a/mine.py"
    assert name_data_set(own | {"data": "b/signs.py:load"}) == "load() of b/signs.py"


def test_a_folder_of_the_name_of_a_link_is_shown_by_its_own(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "best").symlink_to("run")
    assert names(find_records([str(tmp_path)]).runs) == ["run"]
