"""Where Fashion-MNIST is taken from, on small files of the same format."""

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kdist.data import fashion_mnist
from kdist.data.fashion_mnist_files import IdxFile
from kdist.data.fashion_mnist_sources import find_fashion_mnist
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
