import json
import os
import threading

import pytest
from kdist import input_files
from kdist.errors import error_text
from kdist.input_files import check_plain, parse_json, read_text


def nested(levels):
    return "[" * levels + "]" * levels


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


def test_a_file_of_the_largest_size_is_read_and_a_larger_one_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "MOST_BYTES", 2**20)
    path = tmp_path / "a"
    path.write_text("x" * 2**20)
    assert len(read_text(path)) == 2**20
    path.write_text("x" * (2**20 + 1))
    with pytest.raises(ValueError, match="it is larger than 1 MiB"):
        read_text(path)


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
    assert words in error_text(raised.value)
    assert path not in error_text(raised.value) or path == "."


def test_json_of_twenty_levels_is_read():
    assert parse_json(nested(20)) == json.loads(nested(20))


@pytest.mark.parametrize("levels", [21, 900, 100_000])
def test_json_that_is_nested_deeper_is_refused(levels):
    for text in (nested(levels), '{"a":' * levels + "1" + "}" * levels):
        with pytest.raises(ValueError, match="nested more than 20 levels deep"):
            parse_json(text)


def test_integers_have_64_bits():
    assert check_plain({"a": [2**63 - 1, -(2**63), True]}) == {"a": [2**63 - 1, -(2**63), True]}
    for value in (2**63, -(2**63) - 1, 1 << 20_000):
        with pytest.raises(ValueError, match="more than 64 bits"):
            check_plain({"a": [{"b": value}]})
