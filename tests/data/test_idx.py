"""The idx parser: what is whole is read as it is, everything else is a UserError."""

import gzip
import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.idx import parse_idx, read_idx
from kdist.errors import UserError


def idx(array):
    """Written from the format's description, apart from the parser."""
    dimensions = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + dimensions + array.tobytes()


ARRAY = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
CONTENT = idx(ARRAY)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_reads_what_the_format_says(shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    result = parse_idx(idx(array), shape=tuple(shape), origin="file")
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, array)


@given(st.binary(max_size=80))
def test_any_bytes_are_an_array_or_a_user_error(content):
    try:
        parse_idx(content, shape=(2, 3), origin="file")
    except UserError as error:
        message = str(error)
    else:
        message = "file: expected"
    assert message.startswith("file: ")
    assert "expected" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["file.gz", "file"])
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_damaged_files_are_never_read_as_something_else(name, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("idx") / name
    whole = gzip.compress(CONTENT, mtime=0) if name.endswith(".gz") else CONTENT
    damage = data.draw(st.sampled_from(["truncate", "flip", "append", "overwrite", "empty"]))
    position = data.draw(st.integers(0, len(whole) - 1))
    if damage == "truncate":
        damaged = whole[:position]
    elif damage == "flip":
        bit = 1 << data.draw(st.integers(0, 7))
        damaged = whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :]
    elif damage == "append":
        damaged = whole + data.draw(st.binary(min_size=1, max_size=20))
    elif damage == "overwrite":
        damaged = (whole[:position] + data.draw(st.binary(max_size=20)) + whole[position:])[:200]
    else:
        damaged = b""
    path.write_bytes(damaged)
    try:
        result = read_idx(path, shape=ARRAY.shape, sha256=SHA256)
    except UserError as error:
        message = str(error)
    else:
        # Only the container was touched: gzip's time stamp, say, or nothing at all.
        np.testing.assert_array_equal(result, ARRAY)
        return
    assert message.startswith(f"{path}: ")
    assert "data_dir" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["file.gz", "file"])
def test_every_truncation_is_an_error(name, tmp_path):
    path = tmp_path / name
    whole = gzip.compress(CONTENT, mtime=0) if name.endswith(".gz") else CONTENT
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read_idx(path, shape=ARRAY.shape, sha256=SHA256)
    path.write_bytes(whole)
    np.testing.assert_array_equal(read_idx(path, shape=ARRAY.shape, sha256=SHA256), ARRAY)


def test_every_changed_byte_of_an_uncompressed_file_is_an_error(tmp_path):
    path = tmp_path / "file"
    for position in range(len(CONTENT)):
        changed = bytearray(CONTENT)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError):
            read_idx(path, shape=ARRAY.shape, sha256=SHA256)


def test_says_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="starts with 0000080200000002; expected 0000080100000006"):
        parse_idx(idx(np.zeros((2, 3), np.uint8)), shape=(6,), origin="file")
    with pytest.raises(UserError, match="only 13 bytes; expected 14"):
        parse_idx(idx(np.zeros(6, np.uint8))[:-1], shape=(6,), origin="file")
    with pytest.raises(UserError, match="more than 14 bytes; expected 14"):
        parse_idx(idx(np.zeros(6, np.uint8)) + b"1", shape=(6,), origin="file")
    with pytest.raises(UserError, match="starts with nothing"):
        parse_idx(b"", shape=(6,), origin="file")
    with pytest.raises(UserError, match=r"cannot be read .*No such file"):
        read_idx(tmp_path / "none", shape=(6,), sha256="")
    with pytest.raises(UserError, match="cannot be read"):
        read_idx(tmp_path, shape=(6,), sha256="")
    path = tmp_path / "file"
    path.write_bytes(idx(np.zeros(6, np.uint8)))
    with pytest.raises(UserError, match=r"SHA-256 .*; expected 123, .*damaged"):
        read_idx(path, shape=(6,), sha256="123")


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(CONTENT + bytes(10_000_000)))
    lengths = []
    monkeypatch.setattr(
        "kdist.data.idx.parse_idx", lambda content, **_: lengths.append(len(content))
    )
    with pytest.raises(UserError, match="SHA-256"):
        read_idx(path, shape=ARRAY.shape, sha256=SHA256)
    assert lengths == [len(CONTENT) + 1]
