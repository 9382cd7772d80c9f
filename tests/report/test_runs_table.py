from kdist.report.compared_results import find_results
from kdist.report.inputs import find_sources
from kdist.report.runs_table import runs_table
from report_folders import write_run


def table_of(tmp_path):
    return runs_table(find_sources([str(tmp_path)]).runs)


def lines(table):
    heads = [cell.text for cell in table.columns]
    return [dict(zip(heads, (cell.text for cell in row), strict=True)) for row in table.rows]


def test_results_come_before_settings(tmp_path):
    write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=64)
    heads = [cell.text for cell in table_of(tmp_path).columns]
    assert heads[:7] == [
        *("Run", "Best val. accuracy", "Last", "Images/s", "Time to target", "Total time"),
        "Epochs",
    ]
    assert heads[7:] == [
        *("Status", "Replicas", "Global batch", "Learning rate", "Model", "Optimizer", "Data"),
        "Folder",
    ]
    (line,) = lines(table_of(tmp_path))
    assert (line["Best val. accuracy"], line["Last"], line["Images/s"]) == (
        "0.9000",
        "0.8000",
        "100",
    )
    assert (line["Time to target"], line["Total time"]) == ("20.0 s", "30.5 s")
    assert (line["Model"], line["Global batch"]) == ("WRN-16-10", "64")


def test_settings_that_all_share_are_not_repeated(tmp_path):
    for name, batch in (("a", 16), ("b", 32)):
        write_run(tmp_path / name, batch_size=batch)
    found = lines(table_of(tmp_path))
    assert [line["Global batch"] for line in found] == ["16", "32"]
    assert not {"Model", "Optimizer", "Data", "Learning rate"} & set(found[0])


def test_runs_that_did_not_end_well_are_marked(tmp_path):
    runs = {name: write_run(tmp_path / name) for name in ("done", "killed", "diverged")}
    (runs["killed"] / "summary.json").unlink()
    summary = (runs["diverged"] / "summary.json").read_text()
    marked = summary.replace("{", '{"diverged": {"epoch": 4, "step": 17}, ', 1)
    (runs["diverged"] / "summary.json").write_text(marked)
    write_run(tmp_path / "early")
    for file in ("summary.json", "history.csv"):
        (tmp_path / "early" / file).unlink()
    found = {line["Run"]: line for line in lines(table_of(tmp_path))}
    assert {name: line["Status"] for name, line in found.items()} == {
        "done": "complete",
        "diverged (diverged)": "diverged in epoch 4, step 17",
        "killed (unfinished)": "killed or still running",
        "early (unfinished)": "killed or still running",
    }
    assert found["killed (unfinished)"]["Best val. accuracy"] == "0.9000"
    assert found["killed (unfinished)"]["Total time"] == "30.0 s"
    assert found["early (unfinished)"]["Time to target"] == "\N{EN DASH}"


def test_the_speed_of_a_first_epoch_is_marked(tmp_path):
    write_run(tmp_path / "one", (0.5,))
    table = table_of(tmp_path)
    assert lines(table)[0]["Images/s"] == "50 (first epoch)"
    assert "epochs after the first" not in table.note
    assert "its speed is no measurement" in table.note
    write_run(tmp_path / "three")
    table = table_of(tmp_path)
    assert [line["Images/s"] for line in lines(table)] == ["50 (first epoch)", "100"]
    assert "epochs after the first" in table.note


def test_replicas_that_share_cores_are_marked(tmp_path):
    for replicas in (1, 2):
        write_run(tmp_path / f"r{replicas}", replicas=replicas)
    found = lines(table_of(tmp_path))
    assert [line["Replicas"] for line in found] == ["1", "2, shared cores"]
    gpus = write_run(tmp_path / "r3", replicas=2) / "summary.json"
    gpus.write_text(gpus.read_text().replace("CPU:", "GPU:"))
    assert lines(table_of(tmp_path))[2]["Replicas"] == "2"


def test_replicas_of_several_workers_are_told_from_those_of_one(tmp_path):
    for name in ("together", "alone"):
        write_run(tmp_path / name, replicas=2)
    summary = tmp_path / "together" / "summary.json"
    summary.write_text(summary.read_text().replace("{", '{"workers": 2, ', 1))
    sources = find_sources([str(tmp_path)])
    found = {line["Run"]: line for line in lines(runs_table(sources.runs))}
    assert found["together"]["Replicas"] == "2 of 2 workers, shared cores"
    assert found["alone"]["Replicas"] == "2, shared cores"
    (together,) = (run for run in sources.runs if run.path.name == "together")
    assert together.of_workers == " of 2 workers"
    groups = {result.group for result in find_results(sources)}
    assert len(groups) == 2  # their speeds are not averaged
