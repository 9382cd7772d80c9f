from pathlib import Path

import pytest
from kdist.atomic_files import atomic_path, atomic_write, explain_write_errors, writable_folder
from kdist.errors import UserError


@pytest.mark.parametrize(
    ("content", "written"), [("zwölf\n", "zwölf\n".encode()), (b"\x89", b"\x89")]
)
def test_the_new_content_takes_the_place_of_the_old(tmp_path, content, written):
    path = tmp_path / "file"
    path.write_text("old")
    atomic_write(path, content)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(OSError, match="taken"):
        atomic_write(folder, "new")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_path_takes_the_place_of_the_old_file_once_it_is_written(tmp_path):
    path = tmp_path / "model.weights.h5"
    path.write_text("old")
    with atomic_path(path) as part:
        assert part.parent == tmp_path
        assert part.name.endswith("model.weights.h5")  # Keras looks at the ending
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_no_part_of_the_new_one(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_path(path) as part:
        part.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writable_folder_is_made_and_stays_empty(tmp_path):
    folder = writable_folder(tmp_path / "a" / "b", option="--output")
    assert folder == tmp_path / "a" / "b"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", ["file", "file/below", "/proc"])  # there root cannot write either
def test_a_folder_that_takes_no_file_is_refused(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=rf"^cannot write .*{path}: .*; pass another --log-dir$"):
        writable_folder(tmp_path / path, option="--log-dir")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "cannot write out: No space left on device; go"),
        (OSError(13, "Permission denied", "a"), "cannot write a: Permission denied; go"),
        (OSError(21, "Is a directory", "part", None, "a"), "cannot write a: Is a directory; go"),
        (OSError("odd"), "cannot write out: odd; go"),
    ],
)
def test_why_a_file_cannot_be_written(error, told):
    with pytest.raises(UserError) as raised, explain_write_errors(Path("out"), hint="go"):
        raise error
    assert str(raised.value) == told
