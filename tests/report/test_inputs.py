import pytest
from kdist.errors import UserError
from kdist.report.inputs import find_sources
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
    with pytest.raises(UserError, match="has format 0, this kdist reads 2"):
        find_sources([str(sweep)])


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(UserError, match="cannot read : the path is empty; pass folders of runs"):
        find_sources([""])


def test_a_device_is_no_csv_file():
    with pytest.raises(UserError, match="/dev/zero: not a valid CSV file: .* not a regular file"):
        find_sources(["/dev/zero"])
