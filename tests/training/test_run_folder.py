import errno
import json
from pathlib import Path

import pytest
from kdist.errors import UserError
from kdist.training.run_folder import RunFolder


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


@pytest.mark.parametrize("name", ["x" * 300, "deep/" + "x" * 300, "x/" * 3000])
def test_a_path_that_is_too_long_is_refused_and_leaves_no_folder(tmp_path, name):
    with pytest.raises(UserError, match="cannot write .*: File name too long; pass another --run-"):
        RunFolder(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_every_run_gets_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = {RunFolder(None).path for _ in range(3)}
    assert len(paths) == 3
    assert {path.parent for path in paths} == {Path("runs")}


HEADING = "epoch,seconds\n"


def test_discard_removes_what_was_made_without_a_result(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("begun", "mine", "a/b"):
        folder = RunFolder(str(tmp_path / name))
        folder.write_json("config.json", {})
        folder.history.write_text(HEADING)
        folder.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


def test_discard_leaves_epochs_a_summary_and_what_others_added(tmp_path):
    trained, ended, shared = (RunFolder(str(tmp_path / name)) for name in "abc")
    for folder in (trained, ended, shared):
        folder.write_json("config.json", {})
    trained.history.write_text(HEADING + "1,2.5\n")
    ended.write_json("summary.json", {})
    (shared.path / "tensorboard").mkdir()
    for folder in (trained, ended, shared):
        folder.discard()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    kept = ["a/config.json", "a/history.csv", "b/config.json", "b/summary.json", "c/tensorboard"]
    assert left == kept


def save_half(path):
    """Stands in for a model's `save`, on a disk that is full half-way through its file."""
    path.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_line_and_leaves_no_part(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    folder.write_json("summary.json", {})
    words = "cannot write .*model.keras: No space left on device; free disk space"
    with pytest.raises(UserError, match=words):
        folder.write(folder.model, save_half)
    assert [path.name for path in folder.path.iterdir()] == ["summary.json"]


def test_what_is_left_of_a_run_that_was_killed_as_it_began(tmp_path):
    """A batch system starts the same command again."""
    (tmp_path / "checkpoints").mkdir()
    for name in ("checkpoints/.lock", "checkpoints/.part-7", "plan.json", ".7.config.json"):
        (tmp_path / name).touch()
    RunFolder(str(tmp_path))
    for name in ("config.json", "checkpoints/e000001-b000000000-0.safetensors", "mine"):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match="is not empty"):
            RunFolder(str(tmp_path))
        (tmp_path / name).unlink()
