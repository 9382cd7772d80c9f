"""Fashion-MNIST and CIFAR-10 as `keras.datasets` reads small files, and the embedded sample."""

import errno
import fcntl
import gzip
import hashlib
import http.client
import socket
import subprocess
import sys
import urllib.error
from importlib import resources

import keras
import numpy as np
import pytest
from kdist.data import cifar10, fashion_mnist
from kdist.data.image_files import keras_datasets_folder, read_sample
from kdist.errors import UserError
from replicas import assert_equal

RANDOM = np.random.default_rng(1)
FASHION = {
    "train-images-idx3-ubyte.gz": RANDOM.integers(0, 256, (6, 28, 28), np.uint8),
    "train-labels-idx1-ubyte.gz": RANDOM.integers(0, 10, 6, np.uint8),
    "t10k-images-idx3-ubyte.gz": RANDOM.integers(0, 256, (4, 28, 28), np.uint8),
    "t10k-labels-idx1-ubyte.gz": RANDOM.integers(0, 10, 4, np.uint8),
}
CIFAR = [
    RANDOM.integers(0, 256, (5, 32, 32, 3), np.uint8),
    RANDOM.integers(0, 10, (5, 1), np.uint8),
    RANDOM.integers(0, 256, (3, 32, 32, 3), np.uint8),
    RANDOM.integers(0, 10, (3, 1), np.uint8),
]
SAMPLE = "Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Keras's folder, which is empty."""
    folder = tmp_path / "keras"
    folder.mkdir()
    monkeypatch.setenv("KERAS_HOME", str(folder))
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(folder))
    return folder


@pytest.fixture
def download(monkeypatch):
    """Has each download raise an error, or write a file of this content."""

    def does(outcome):
        def urlretrieve(_, path, __):
            assert socket.getdefaulttimeout() == 10
            if isinstance(outcome, Exception):
                raise outcome
            with open(path, "wb") as file:
                file.write(outcome)

        monkeypatch.setattr("keras.src.utils.file_utils.urlretrieve", urlretrieve)

    return does


def fill():
    """Write the files of Fashion-MNIST from the format's description."""
    folder = keras_datasets_folder() / "fashion-mnist"
    folder.mkdir(parents=True)
    for name, array in FASHION.items():
        dimensions = b"".join(size.to_bytes(4, "big") for size in array.shape)
        content = b"\x00\x00\x08" + bytes([array.ndim]) + dimensions + array.tobytes()
        (folder / name).write_bytes(gzip.compress(content))
    return folder


def test_fashion_mnist_is_read_from_keras_folder():
    fill()
    lines = []
    data = fashion_mnist(announce=lines.append)
    parts = (data.train_images[..., 0], data.train_labels, data.test_images[..., 0])
    assert_equal([*parts, data.test_labels], [*FASHION.values()])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert lines == ["Fashion-MNIST: keras.datasets (6 training and 4 test images)"]


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("Name or service not known"),
        urllib.error.ContentTooShortError("retrieval incomplete", None),
        TimeoutError("timed out"),
        http.client.BadStatusLine("no HTTP"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failed_download_is_announced_or_an_error(error, download, capsys):
    download(error)
    lines = []
    assert len(fashion_mnist(announce=lines.append).train_images) == 10_000
    (line,) = lines
    assert line.startswith(f"{SAMPLE}; the full set was not found and could not be downloaded (")
    with pytest.raises(UserError, match="^CIFAR-10 was not found and could not be") as caught:
        cifar10(announce=lines.append)
    assert "\n" not in str(caught.value)
    file = keras_datasets_folder() / "cifar-10-batches-py-target_archive"
    assert f"save the file as {file}, or use --dataset sample" in str(caught.value)
    assert lines[1].startswith("CIFAR-10: downloading 170 MB from https://")
    assert capsys.readouterr().out == ""
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize("change", [lambda file: file[:-9], lambda _: b"<html>", lambda _: b""])
def test_a_damaged_file_is_an_error(change):
    folder = fill()
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError, match=rf"cannot be read \(.*\): remove {folder}, so that"):
        fashion_mnist()


def test_another_archive_is_not_unpacked(download):
    download(b"something else")
    with pytest.raises(UserError, match=r"^CIFAR-10 cannot be read \(.* does not match .*\): down"):
        cifar10()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_cifar10_has_flat_labels_and_its_channels_last(data_format, monkeypatch):
    def load_data():
        with (
            open(keras_datasets_folder() / ".kdist.lock") as file,
            pytest.raises(BlockingIOError),  # another process waits
        ):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        images, labels, test_images, test_labels = CIFAR
        if data_format == "channels_first":
            images, test_images = (part.transpose(0, 3, 1, 2) for part in (images, test_images))
        return (images, labels), (test_images, test_labels)

    monkeypatch.setattr(keras.datasets.cifar10, "load_data", load_data)
    data = cifar10()
    assert_equal([data.train_images, data.test_images], [CIFAR[0], CIFAR[2]])
    assert_equal([data.train_labels, data.test_labels], [CIFAR[1][:, 0], CIFAR[3][:, 0]])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert data.train_images.flags.c_contiguous


def test_a_folder_that_cannot_be_written_is_not_locked(home, monkeypatch):
    monkeypatch.setattr(
        keras.datasets.cifar10, "load_data", lambda: ((CIFAR[0], CIFAR[1]), (CIFAR[2], CIFAR[3]))
    )
    (home / "datasets").touch()
    assert len(cifar10().train_images) == 5


def test_the_sample_is_taken_when_asked_for(capsys):
    fill()
    assert len(fashion_mnist(sample=True).test_images) == 2_000
    assert capsys.readouterr().out == f"{SAMPLE}\n"


def test_the_cache_is_where_keras_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_HOME")
    assert keras_datasets_folder() == tmp_path / ".keras/datasets"
    monkeypatch.setenv("KERAS_HOME", "~/elsewhere")
    assert keras_datasets_folder() == tmp_path / "elsewhere/datasets"


def test_loading_needs_no_tensorflow():
    code = (
        "import sys, kdist.data; data = kdist.data.fashion_mnist(sample=True);"
        "kdist.data.Standardization.of(data.train_images)(data.test_images);"
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.splitlines() == [SAMPLE, "[]"]


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


def test_the_notice_lies_beside_the_sample():
    notice = resources.files("kdist.data") / "fashion_mnist_sample.LICENSE"
    assert "MIT License" in notice.read_text(encoding="utf-8")
