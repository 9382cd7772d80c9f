"""Where Fashion-MNIST is taken from, the embedded sample, and the format of the files."""

import gzip
import hashlib
import subprocess
import sys
from importlib import resources
from pathlib import Path

import kdist.data
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data import fashion_mnist
from kdist.data.fashion_mnist_files import (
    DEBIAN,
    IdxFile,
    find_fashion_mnist,
    missing_files,
    parse_idx,
    read_folder,
    read_idx,
    read_sample,
)
from kdist.data.sources import keras_datasets
from kdist.errors import UserError

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "train-images-idx3-ubyte": RANDOM.integers(0, 256, (6, 28, 28), np.uint8),
    "train-labels-idx1-ubyte": RANDOM.integers(0, 10, 6, np.uint8),
    "t10k-images-idx3-ubyte": RANDOM.integers(0, 256, (4, 28, 28), np.uint8),
    "t10k-labels-idx1-ubyte": RANDOM.integers(0, 10, 4, np.uint8),
}
CONTENTS = {
    name: b"\0\0\x08"
    + bytes([array.ndim])
    + np.array(array.shape, ">u4").tobytes()
    + array.tobytes()
    for name, array in ARRAYS.items()
}
FILES = tuple(
    IdxFile(name, array.shape, hashlib.sha256(CONTENTS[name]).hexdigest())
    for name, array in ARRAYS.items()
)
SAMPLE = "Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)"


def fill(folder, *, compressed=True):
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def places(tmp_path):
    """The cache, a system folder and a server; none of them exists yet."""
    return tmp_path / "cache", tmp_path / "system", tmp_path / "server"


def find(places, lines, *, data_dir=None, sample=False):
    cache, system, server = places
    return find_fashion_mnist(
        data_dir=data_dir,
        sample=sample,
        announce=lines.append,
        cache=cache,
        system_dirs=[system],
        url=f"{server.as_uri()}/",
        files=FILES,
    )


def assert_is_the_full_set(data, source):
    assert data.source == str(source)
    np.testing.assert_array_equal(
        data.train_images[..., 0], ARRAYS["train-images-idx3-ubyte"], strict=True
    )
    np.testing.assert_array_equal(data.train_labels, ARRAYS["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(
        data.test_images[..., 0], ARRAYS["t10k-images-idx3-ubyte"], strict=True
    )
    np.testing.assert_array_equal(data.test_labels, ARRAYS["t10k-labels-idx1-ubyte"])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32


@pytest.mark.parametrize("compressed", [True, False])
def test_a_given_folder_comes_first(compressed, places, tmp_path):
    for place in places:
        fill(place)
    given = fill(tmp_path / "given", compressed=compressed)
    lines = []
    assert_is_the_full_set(find(places, lines, data_dir=str(given)), given)
    assert lines == [f"Fashion-MNIST: 6 training and 4 test images from {given}"]


def test_then_the_cache_then_the_system_then_a_download(places):
    cache, system, server = places
    fill(server)
    lines = []
    assert_is_the_full_set(find(places, lines), cache)
    assert sorted(path.name for path in cache.iterdir()) == sorted(f"{n}.gz" for n in CONTENTS)

    server.rename(system)  # downloaded once, it needs no network any more
    assert_is_the_full_set(find(places, lines), cache)
    cache.rename(server)
    assert_is_the_full_set(find(places, lines), system)
    assert lines == [
        f"Fashion-MNIST: 6 training and 4 test images from {place}"
        for place in (cache, cache, system)
    ]


def test_a_download_that_broke_off_is_completed(places):
    cache, _, server = places
    fill(server)
    late = server / "t10k-images-idx3-ubyte.gz"
    late.rename(server / "later")
    lines = []
    assert find(places, lines).source == "the embedded sample"
    assert sorted(path.name for path in cache.iterdir()) == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
    ]
    (server / "later").rename(late)
    assert_is_the_full_set(find(places, lines), cache)


def test_without_a_network_the_sample_is_taken_and_said(places):
    lines = []
    data = find(places, lines)
    assert len(data.train_images) == 10_000
    (line,) = lines
    assert line.startswith(
        f"{SAMPLE}; the full set was not found and could not be downloaded (URL fetch "
    )
    assert list(places[0].iterdir()) == []


def test_the_sample_is_taken_when_asked_for(places, capsys):
    fill(places[0])
    lines = []
    assert len(find(places, lines, sample=True).test_images) == 2_000
    assert lines == [SAMPLE]
    fashion_mnist(sample=True)
    assert capsys.readouterr().out == f"{SAMPLE}\n"


def test_contradictory_arguments_are_an_error(tmp_path):
    with pytest.raises(UserError, match="both given; expected one"):
        fashion_mnist(data_dir=tmp_path, sample=True)


def test_a_given_folder_without_the_files_is_an_error(places, tmp_path):
    fill(places[0])
    with pytest.raises(UserError, match="none' is not a folder; expected the 4 files"):
        find(places, [], data_dir=tmp_path / "none")
    given = fill(tmp_path / "given")
    (given / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="has no t10k-labels-idx1-ubyte; expected the 4 files"):
        find(places, [], data_dir=given)


@pytest.mark.parametrize("place", ["given", "cache", "system"])
def test_a_damaged_file_is_an_error_wherever_it_lies(place, places, tmp_path):
    fill(places[2])
    folder = fill(tmp_path / place)
    damaged = folder / "train-images-idx3-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    lines = []
    with pytest.raises(UserError, match=f"{damaged}: cannot be read .*expected .*data_dir"):
        find(places, lines, data_dir=folder if place == "given" else None)
    assert lines == []


def test_another_data_set_of_the_same_shape_is_an_error(places, tmp_path):
    given = fill(tmp_path / "given", compressed=False)
    labels = given / "train-labels-idx1-ubyte"
    labels.write_bytes(CONTENTS[labels.name][:-1] + b"\x63")
    with pytest.raises(UserError, match=f"{labels}: the content has SHA-256 .*; expected "):
        find(places, [], data_dir=given)


def test_a_download_of_something_else_is_an_error_and_is_not_kept(places):
    cache, _, server = places
    fill(server)
    (server / "train-labels-idx1-ubyte.gz").write_bytes(b"<html>Please log in</html>")
    with pytest.raises(
        UserError,
        match=r"server/train-labels-idx1-ubyte\.gz: cannot be read .*The download was deleted",
    ) as caught:
        find(places, [])
    assert ".download-" not in str(caught.value)
    assert [path.name for path in cache.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_the_cache_is_where_keras_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    assert keras_datasets() == tmp_path / ".keras/datasets"
    monkeypatch.setenv("KERAS_HOME", "~/elsewhere")
    assert keras_datasets() == tmp_path / "elsewhere/datasets"
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert keras_datasets() == Path("/tmp/.keras/datasets")


def test_loading_needs_no_tensorflow():
    code = (
        "import sys, kdist.data; data = kdist.data.fashion_mnist(sample=True);"
        "kdist.data.Standardization.of(data.train_images)(data.test_images);"
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.splitlines() == [SAMPLE, "[]"]


FOLDER = resources.files("kdist.data")


def test_the_sample_has_the_promised_form():
    sample = read_sample()
    assert sample.train_images.shape == (10_000, 28, 28, 1)
    assert sample.test_images.shape == (2_000, 28, 28, 1)
    assert sample.train_images.dtype == sample.test_images.dtype == np.uint8
    assert sample.train_labels.shape == (10_000,)
    assert sample.test_labels.shape == (2_000,)
    assert set(sample.train_labels) == set(sample.test_labels) == set(range(10))
    assert sample.classes == 10
    assert sample.class_names[9] == "Ankle boot"
    with (FOLDER / "fashion_mnist_sample.npz").open("rb") as file:
        assert len(file.read()) <= 6_000_000


@pytest.mark.parametrize(
    ("part", "sha256"),
    # zcat train-images-idx3-ubyte.gz | tail -c +17 | head -c 7840000 | sha256sum, and so on
    [
        ("train_images", "2929ae1c7b89e0ee6587bbe4911fd5f0a5dafe21ae6ed9b737173cbfe20c12c9"),
        ("train_labels", "1022e4632874e71bb84d924c475e6a3428a2deeb8c5a0f612a015c97e4fce7f0"),
        ("test_images", "09bbac78738f0229a68f7ca74e62665d7fb34f45ea7a3509ab5c4a202c1370de"),
        ("test_labels", "a86243d2b2400909bc0a82f5fd5c9df83bf827852a1543e3dc70af890035a9d4"),
    ],
)
def test_the_sample_is_the_beginning_of_the_published_files(part, sha256):
    content = getattr(read_sample(), part).astype(np.uint8).tobytes()
    assert hashlib.sha256(content).hexdigest() == sha256


def test_the_sample_is_the_beginning_of_the_full_set():
    folder = next(
        (
            place
            for place in (keras_datasets() / "fashion-mnist", DEBIAN)
            if not missing_files(place)
        ),
        None,
    )
    if folder is None:
        pytest.skip("the full Fashion-MNIST is neither in the Keras cache nor installed")
    full, sample = read_folder(folder), read_sample()
    assert len(full.train_images) == 60_000
    assert len(full.test_images) == 10_000
    np.testing.assert_array_equal(sample.train_images, full.train_images[:10_000])
    np.testing.assert_array_equal(sample.train_labels, full.train_labels[:10_000])
    np.testing.assert_array_equal(sample.test_images, full.test_images[:2_000])
    np.testing.assert_array_equal(sample.test_labels, full.test_labels[:2_000])


def test_the_notice_lies_beside_the_sample():
    notice = (FOLDER / "fashion_mnist_sample.LICENSE").read_text(encoding="utf-8")
    assert "MIT License" in notice
    assert "Zalando SE" in notice
    assert "Permission is hereby granted" in notice


def test_the_public_names():
    assert sorted(kdist.data.__all__) == [
        "ColorJitter",
        "ImageData",
        "RandomAffine",
        "RandomBrightness",
        "RandomContrast",
        "RandomCrop",
        "RandomCutout",
        "RandomHorizontalFlip",
        "Standardization",
        "center_crop",
        "cifar10",
        "evaluation_batches",
        "fashion_mnist",
        "random_flip_and_shift",
        "training_batches",
    ]
    for name in kdist.data.__all__:
        assert callable(getattr(kdist.data, name))


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
        "kdist.data.fashion_mnist_files.parse_idx",
        lambda content, **_: lengths.append(len(content)),
    )
    with pytest.raises(UserError, match="SHA-256"):
        read_idx(path, shape=ARRAY.shape, sha256=SHA256)
    assert lengths == [len(CONTENT) + 1]
