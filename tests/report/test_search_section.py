import pytest
from kdist.report.compared_results import find_results
from kdist.report.headlines import headlines
from kdist.report.inputs import find_sources
from kdist.report.report import make_report
from kdist.report.writing import write_report
from report_folders import search_trials, write_run, write_search


def report_of(path):
    return make_report(find_sources([str(path)]))


def test_a_search_among_runs_is_shown(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_search(tmp_path / "runs" / "tune", search_trials())
    report = report_of(tmp_path / "runs")
    assert report.title == "1 search and 1 run"
    assert [section.title for section in report.sections] == ["Search tune", "Runs", "Settings"]
    assert report.skipped == []
    section = report.sections[0]
    assert section.lead == (
        "Random search of WRN-10-1 for the highest val_accuracy: 5 trials completed, 1 failed,"
        " 1 unfinished: stopped or still running."
    )
    assert section.settings["tuner"] == "random"
    assert not {"base_lr", "space", "output", "run_dir"} & set(section.settings)


def test_results_of_trials_come_before_their_hyperparameters(tmp_path):
    (section,) = report_of(write_search(tmp_path / "tune", search_trials())).sections
    (table,) = section.results
    assert [cell.text for cell in table.columns] == [
        *("Trial", "val_accuracy", "seconds", "epochs", "base_lr", "batch_size", "dropout")
    ]
    lines = [[cell.text for cell in row] for row in table.rows]
    assert lines[0] == ["3", "0.9", "13", "3", "0.03", "32", "0.1"]
    assert [line[:2] for line in lines[-2:]] == [["5", "failed"], ["6", "running"]]
    (failures,) = section.tables
    assert [[cell.text for cell in row] for row in failures.rows] == [
        ["trial 5", "loss was nan after epoch 1"]
    ]


def test_a_search_is_drawn_as_kdist_tune_draws_it(tmp_path):
    (section,) = report_of(write_search(tmp_path / "tune", search_trials())).sections
    (figure,) = section.figures
    labels = [one.label.split(" (")[0] for one in figure.variants]
    assert labels == ["Trials in order", "base_lr", "batch_size"]  # the dropout did not vary
    assert figure.of == "WRN-10-1"
    against_rate = figure.variants[1].chart.to_dict()["layer"][0]["encoding"]["x"]
    assert against_rate["scale"]["type"] == "log"
    rows = section.data["search-1"]
    assert [row["outcome"] for row in rows] == ["trial"] * 5 + ["failed"]
    assert [row["trial"] for row in rows] == [0, 1, 2, 3, 4, 5]


def test_trials_count_for_the_best_accuracy(tmp_path):
    sources = find_sources([str(write_search(tmp_path / "tune", search_trials()))])
    (best,) = headlines(find_results(sources))
    assert (best.title, best.value) == ("Best validation accuracy", "0.9000")
    assert best.of == "tune, trial 3"
    assert best.certainty.startswith("The best of 5 runs")


def test_a_search_whose_trials_failed_or_that_has_none(tmp_path):
    failed = [trial for trial in search_trials() if trial.get("status") == "FAILED"]
    write_search(tmp_path / "in" / "failed", failed)
    write_search(tmp_path / "in" / "new", [])
    (tmp_path / "in" / "new" / "trials" / "oracle.json").unlink()
    written = write_report([str(tmp_path / "in")], output=str(tmp_path / "report.html"))
    assert [path.name for path in written.pictures] == ["search-1.png"]
    assert "0 trials completed, 1 failed" in written.page.read_text()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("search.json", "[1]"),
        ("search.json", "{"),
        ("search.json", '{"future": 1}'),
        ("trials/oracle.json", '{"start_order": ["0", "9"]}'),
        ("trials/trial_0/trial.json", "{}"),
    ],
)
def test_a_damaged_search_is_skipped_with_the_reason(tmp_path, file, content):
    write_run(tmp_path / "a")
    search = write_search(tmp_path / "tune", search_trials())
    (search / file).write_text(content)
    (skipped,) = find_sources([str(tmp_path)]).skipped
    assert skipped.path == str(search)
    assert skipped.reason
