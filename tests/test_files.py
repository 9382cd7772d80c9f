"""Files that are written, and files that are read."""

import os
import threading
from pathlib import Path

import pytest
from kdist.errors import UserError, message_without_path
from kdist.files import (
    atomic_path,
    atomic_write,
    check_output_file,
    check_writable_folder,
    create_writable_folder,
    explain_write_errors,
    folder_for_files,
    read_text,
    remove_empty,
)


@pytest.mark.parametrize(
    ("content", "written"), [("zwölf\n", "zwölf\n".encode()), (b"\x89", b"\x89")]
)
def test_the_new_content_takes_the_place_of_the_old(tmp_path, content, written):
    path = tmp_path / "file"
    path.write_text("old")
    atomic_write(path, content)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_nothing_behind(tmp_path):
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
    folder = tmp_path / "a" / "b"
    assert create_writable_folder(folder, option="--output") == [folder, tmp_path / "a"]
    assert list(folder.iterdir()) == []
    assert create_writable_folder(folder, option="--output") == []


def test_a_folder_is_checked_without_making_it(tmp_path):
    check_writable_folder(tmp_path / "a" / "b", option="--output")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c").mkdir()
    check_writable_folder(tmp_path / "c", option="--output")
    assert (tmp_path / "c").is_dir()


def test_folders_that_are_not_empty_stay(tmp_path):
    made = create_writable_folder(tmp_path / "a" / "b" / "c", option="--output")
    (tmp_path / "a" / "file").touch()
    remove_empty(made)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made_leaves_no_parents(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*; pass another --run-dir"):
        create_writable_folder(tmp_path / "a" / "b" / ("x" * 300), option="--run-dir")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [[], ["a"], ["a/b"], ["a/b", "a/b/mine"]])
def test_an_error_removes_the_folders_that_were_made_for_files(tmp_path, before):
    for name in before:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ZeroDivisionError), folder_for_files(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "new").touch()
        raise ZeroDivisionError
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {*before, *(["a", "a/b/new"] if "a/b" in before else [])}


def test_a_file_to_write_is_a_regular_one_or_none_yet(tmp_path):
    """A link stays, and its file is written: `/dev/stdout` is a link to a file of the shell's."""
    (tmp_path / "file").touch()
    for name in ("file", "new", "no/folder/yet"):
        path = tmp_path / name
        assert check_output_file(str(path), option="--output") == path
    (tmp_path / "link").symlink_to("file")
    assert check_output_file(str(tmp_path / "link"), option="--output") == tmp_path / "file"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "--output is an empty path: leave it out"),
        ("\udcff.html", "--output has to be a path in UTF-8"),
        (".", "cannot write .: it is not a regular file; pass another --output"),
        ("/dev/full", "cannot write /dev/full: it is not a regular file; pass another --output"),
        ("pipe", "cannot write pipe: it is not a regular file"),
        ("x" * 300, "cannot write x*: File name too long; pass another --output"),
    ],
)
def test_files_that_are_not_regular_are_refused(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(UserError, match=f"^{words}"):
        check_output_file(name, option="--output")


@pytest.mark.parametrize("path", ["file", "file/below", "/proc"])  # there root cannot write either
def test_a_folder_that_takes_no_file_is_refused(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=rf"^cannot write .*{path}: .*; pass another --log-dir$"):
        create_writable_folder(tmp_path / path, option="--log-dir")


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


def test_text_is_read_without_its_byte_order_mark(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfwidth = 2 # zw\xc3\xb6lf")
    assert read_text(path) == "width = 2 # zwölf"


def test_a_pipe_is_read_to_its_end(tmp_path):
    """As a shell passes the output of a command: `--config <(command)`."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("a" * 100_000,))
    writer.start()
    assert read_text(path) == "a" * 100_000
    writer.join()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_a_device_is_not_read(path):
    with pytest.raises(ValueError, match="not a regular file"):
        read_text(path)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nothing", "No such file or directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_why_a_path_cannot_be_read(path, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((OSError, ValueError)) as raised:
        read_text(path)
    assert words in message_without_path(raised.value)
    assert path not in message_without_path(raised.value) or path == "."
