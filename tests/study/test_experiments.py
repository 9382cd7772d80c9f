"""What holds for every kind of sweep."""

import pytest
from fake_runs import MACHINE, FakeRuns, done_row, run, throughput
from kdist.charts.figures import Figure
from kdist.errors import UserError
from kdist.report.inputs import find_sources
from kdist.report.sections import make_report
from kdist.study.folder import About, StudyFolder
from kdist.study.sweep_kinds import EXPERIMENTS, AccuracySweep, ScalingSweep, ThroughputSweep
from report_folders import write_run

TIMED = {"epochs": 3, "rounds": 2}


def experiments():
    train = {"target_accuracy": 0.85}
    return [
        throughput(),
        AccuracySweep(
            train=train,
            batch_sizes=[8, 16],
            lr_rules=["linear", "sqrt"],
            replicas=[1],
            base_lr=0.1,
            base_batch=8,
            seeds=2,
        ),
        ScalingSweep(
            train={},
            batch_size=8,
            global_batch=16,
            replicas=[1, 2],
            modes=["weak", "strong"],
            **TIMED,
        ),
    ]


def rows_of(experiment):
    extra = {"reached_target": True, "seconds_to_target": 0.5, "epochs_to_target": 2}
    extra |= {"best_val_accuracy": 0.9, "noise_scale": 20.0}
    return [done_row(point, type(experiment), **extra) for point in experiment.points()]


@pytest.fixture(params=experiments(), ids=lambda one: one.kind)
def experiment(request):
    return request.param


def test_every_kind_is_tested_here():
    assert [one.kind for one in experiments()] == list(EXPERIMENTS)


def test_columns_are_declared(experiment):
    columns = experiment.columns()
    assert set(experiment.setting) <= set(columns)
    assert set(experiment.required) <= set(columns)
    for point in experiment.points():
        assert set(point.axes) <= set(columns)
        for name, value in point.axes.items():
            assert columns[name].check(value) == value
            with pytest.raises(UserError):
                columns[name].check([value])


def test_repetitions_are_one_group(experiment):
    groups = {}
    for point in experiment.points():
        groups.setdefault(point.group, []).append(point)
    assert {len(points) for points in groups.values()} == {experiment.repetitions}
    for points in groups.values():
        assert {experiment.group(point.axes) for point in points} == {points[0].group}


def test_settings_are_the_fields(experiment):
    again = type(experiment)(**experiment.settings)
    assert again == experiment


def test_no_point_that_is_done_has_no_table_and_no_figure(experiment):
    summary = experiment.summarize([], experiment.settings)
    assert experiment.tables(summary) == []
    assert experiment.figures([], summary) == []


def test_rows_of_tables_are_as_long_as_their_heading(experiment):
    for table in experiment.tables(experiment.summarize(rows_of(experiment), experiment.settings)):
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_report_shows_the_charts_and_tables_of_the_sweep(here, experiment, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "png", lambda figure, **_: drawn.append(figure) or b"png")

    class Runs(FakeRuns):
        def __call__(self, point, folder, experiment):
            row = super().__call__(point, folder, experiment)
            if experiment.trains:
                (folder / "run").rmdir()
                write_run(folder / "run")
            return row | {"run_dir": f"points/{point.name}/run"}

    runs = Runs()
    runs.at = {row["name"]: row for row in rows_of(experiment)}
    assert run(runs, experiment, machine=MACHINE, output="out")[0] == 0
    report = make_report(find_sources(["out"]))
    shown = report.sections[0].figures
    assert [one.id for one in shown] == [one.id for one in drawn]
    for one, figure in zip(shown, drawn, strict=True):
        assert (one.title, one.caption) == (figure.title, figure.caption)
        # The sweep has the order in which points ran, the report that of their names.
        for name, rows in figure.data.items():
            assert sorted(map(str, one.data[name])) == sorted(map(str, rows))


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
        with StudyFolder(output).open(About(kind=made.kind, settings=made.settings)) as resumed:
            return resumed

    assert [opened(), opened()] == [False, True]
    ended = tmp_path / "sweep" / "points" / "b8-r1-round1" / "point.json"
    ended.parent.mkdir(parents=True)
    ended.write_text("{}")
    other.write_text("more data")
    with pytest.raises(UserError, match=r"contains another study: .*other\.py has changed since;"):
        opened()
    other.write_text("data")
    assert opened()
