import json

import pytest
from kdist.errors import UserError
from kdist.runs.run_folder import RunFolder


def test_makes_the_folder_and_writes_into_it(tmp_path):
    folder = RunFolder(str(tmp_path / "a" / "b"))
    folder.write_json("config.json", {"width": 2})
    assert json.loads((tmp_path / "a" / "b" / "config.json").read_text()) == {"width": 2}
    assert [path.name for path in folder.path.iterdir()] == ["config.json"]


def test_an_empty_folder_is_taken_and_a_full_one_refused(tmp_path):
    RunFolder(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is not empty"):
        RunFolder(str(tmp_path))


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        with pytest.raises(UserError, match="cannot write .*file.*another --run-dir"):
            RunFolder(str(tmp_path / path))


def test_every_run_gets_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {RunFolder(None).path for _ in range(3)}
    assert len(paths) == 3
    assert all(path.parent.name == "runs" for path in paths)


def test_discard_removes_what_was_made_and_is_empty(tmp_path):
    (tmp_path / "mine").mkdir()
    full, mine, deep = (RunFolder(str(tmp_path / name)) for name in ("full", "mine", "a/b"))
    full.write_json("config.json", {})
    for folder in (full, mine, deep):
        folder.discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "mine"]
