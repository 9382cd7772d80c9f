from kdist.report.settings_diff import differing, settings_of, shared
from kdist.report.tables import diff_table
from kdist.runs.run_record import read_run
from report_folders import write_run


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
