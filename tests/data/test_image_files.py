"""Fashion-MNIST and CIFAR-10 on small files: their formats, and where they are taken from."""

import gzip
import hashlib
import http.server
import io
import pickle
import socket
import subprocess
import sys
import tarfile
import threading
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data import cifar10, fashion_mnist, image_files
from kdist.data.image_files import (
    CIFAR10_FILES,
    CIFAR10_FOLDER,
    DownloadError,
    keras_datasets_folder,
    read_sample,
)
from kdist.errors import UserError
from replicas import assert_equal

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "train-images-idx3-ubyte.gz": RANDOM.integers(0, 256, (6, 28, 28), np.uint8),
    "train-labels-idx1-ubyte.gz": RANDOM.integers(0, 10, 6, np.uint8),
    "t10k-images-idx3-ubyte.gz": RANDOM.integers(0, 256, (4, 28, 28), np.uint8),
    "t10k-labels-idx1-ubyte.gz": RANDOM.integers(0, 10, 4, np.uint8),
}


def idx(array):
    """Written from the format's description, apart from the parser."""
    dimensions = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + dimensions + array.tobytes()


# Pixels as a person thinks of them, (image, row, column, colour), and labels, per file.
PIXELS = [RANDOM.integers(0, 256, (5, 32, 32, 3), np.uint8) for _ in CIFAR10_FILES]
LABELS = [RANDOM.integers(0, 10, 5).tolist() for _ in CIFAR10_FILES]


def batch(number, protocol=2):
    """A file of CIFAR-10: planes of red, then green, then blue."""
    pixels = PIXELS[number]
    planes = np.stack([pixels[..., colour].reshape(5, -1) for colour in range(3)], 1)
    data = planes.reshape(5, -1)
    return pickle.dumps({b"labels": LABELS[number], b"data": data, b"x": b"1.png"}, protocol)


FASHION = {name: idx(array) for name, array in ARRAYS.items()}
CIFAR = {name: batch(number) for number, name in enumerate(CIFAR10_FILES)}
SAMPLE = "Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)"


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """The files are small ones, and the cache and the server folders that are not there yet."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    server = (tmp_path / "server").as_uri()
    digests = {
        name.removesuffix(".gz"): hashlib.sha256(content).hexdigest()
        for name, content in FASHION.items()
    }
    monkeypatch.setattr(image_files, "FASHION_MNIST_FILES", digests)
    monkeypatch.setattr(image_files, "FASHION_MNIST_URL", f"{server}/")
    digests = {name: hashlib.md5(content).hexdigest() for name, content in CIFAR.items()}
    monkeypatch.setattr(image_files, "CIFAR10_FILES", digests)
    monkeypatch.setattr(image_files, "CIFAR10_URL", f"{server}/cifar.tar.gz")


def fill(folder, contents):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        is_compressed = name.endswith(".gz")
        (folder / name).write_bytes(gzip.compress(content) if is_compressed else content)
    return folder


def assert_is_fashion(data, source):
    assert data.source == str(source)
    parts = (data.train_images[..., 0], data.train_labels, data.test_images[..., 0])
    assert_equal([*parts, data.test_labels], [*ARRAYS.values()])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32


def test_a_given_folder_comes_first(tmp_path):
    fill(keras_datasets_folder() / "fashion-mnist", {"train-images-idx3-ubyte.gz": b"other"})
    given_folder = fill(tmp_path / "given", FASHION)
    lines = []
    data = fashion_mnist(data_dir=str(given_folder), announce=lines.append)
    assert_is_fashion(data, given_folder)
    assert lines == [f"Fashion-MNIST: {given_folder} (6 training and 4 test images)"]


def test_then_the_cache_which_a_download_fills(tmp_path):
    cache, server = keras_datasets_folder() / "fashion-mnist", tmp_path / "server"
    fill(server, FASHION)
    late = server / "t10k-images-idx3-ubyte.gz"
    late.rename(server / "later")
    assert fashion_mnist().source == "the embedded sample"
    assert sorted(path.name for path in cache.iterdir()) == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
    ]
    (server / "later").rename(late)
    assert_is_fashion(fashion_mnist(), cache)
    server.rename(tmp_path / "elsewhere")  # downloaded once, it needs no network any more
    assert_is_fashion(fashion_mnist(), cache)
    assert sorted(path.name for path in cache.iterdir()) == sorted(FASHION)


def test_without_a_network_the_sample_is_taken_and_said(tmp_path):
    lines = []
    assert len(fashion_mnist(announce=lines.append).train_images) == 10_000
    (line,) = lines
    words = f"{SAMPLE}; the full set was not found and could not be downloaded (URL fetch "
    assert line.startswith(words)
    assert list((keras_datasets_folder() / "fashion-mnist").iterdir()) == []


def test_a_download_of_something_else_is_not_kept(tmp_path):
    server = fill(tmp_path / "server", FASHION)
    (server / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"<html>"))
    lines = []
    assert fashion_mnist(announce=lines.append).source == "the embedded sample"
    assert "train-labels-idx1-ubyte.gz: the content has sha256" in lines[0]
    cache = keras_datasets_folder() / "fashion-mnist"
    assert [path.name for path in cache.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_the_sample_is_taken_when_asked_for(capsys, tmp_path):
    fill(keras_datasets_folder() / "fashion-mnist", FASHION)
    assert len(fashion_mnist(sample=True).test_images) == 2_000
    assert capsys.readouterr().out == f"{SAMPLE}\n"


def test_a_given_folder_without_the_files_is_an_error(tmp_path):
    with pytest.raises(UserError, match="none' has no train-images.*, expected the 4 files"):
        fashion_mnist(data_dir=tmp_path / "none")
    folder = fill(tmp_path / "given", FASHION)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="has no t10k-labels-idx1-ubyte.gz, expected the 4 files"):
        fashion_mnist(data_dir=folder)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_damaged_files_are_never_read_as_something_else(data, tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("idx") / "given", FASHION)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    damaged = [whole[:at], flipped, whole + b"more", b""]
    path.write_bytes(data.draw(st.sampled_from(damaged)))
    try:
        result = fashion_mnist(data_dir=folder, announce=[].append)
    except UserError as error:
        message = str(error)
    else:  # only the container was touched: gzip's time stamp, say
        assert_is_fashion(result, folder)
        return
    assert message.startswith(f"{path} cannot be read (")
    assert "data_dir" in message


def assert_is_cifar(data, source):
    assert (data.name, data.source) == ("CIFAR-10", str(source))
    np.testing.assert_array_equal(data.train_images, np.concatenate(PIXELS[:5]), strict=True)
    np.testing.assert_array_equal(data.test_images, PIXELS[5], strict=True)
    np.testing.assert_array_equal(data.train_labels, np.concatenate(LABELS[:5]))
    np.testing.assert_array_equal(data.test_labels, LABELS[5])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert data.train_images.flags.c_contiguous


@pytest.mark.parametrize("inner", ["", CIFAR10_FOLDER])
def test_cifar10_in_a_given_folder(inner, tmp_path):
    folder = fill(tmp_path / "given" / inner, CIFAR)
    lines = []
    assert_is_cifar(cifar10(data_dir=tmp_path / "given", announce=lines.append), folder)
    assert lines == [f"CIFAR-10: {folder} (25 training and 5 test images)"]


@pytest.mark.parametrize("inner", [CIFAR10_FOLDER, f"{CIFAR10_FOLDER}-target/{CIFAR10_FOLDER}"])
def test_cifar10_in_the_cache_of_keras(inner):
    folder = fill(keras_datasets_folder() / inner, CIFAR)
    assert_is_cifar(cifar10(), folder)


def packed(folder, monkeypatch):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in CIFAR.items():
            member = tarfile.TarInfo(f"{CIFAR10_FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    folder.mkdir()
    path = folder / "cifar.tar.gz"
    path.write_bytes(file.getvalue())
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    monkeypatch.setattr(image_files, "CIFAR10_SHA256", digest)
    return path


def test_cifar10_is_downloaded_and_kept(tmp_path, monkeypatch):
    archive = packed(tmp_path / "server", monkeypatch)
    source = keras_datasets_folder() / f"{CIFAR10_FOLDER}-target" / CIFAR10_FOLDER
    lines = []
    assert_is_cifar(cifar10(announce=lines.append), source)
    assert lines[0] == f"CIFAR-10: downloading 170 MB from file://{archive}"
    archive.unlink()  # it needs no network any more
    assert_is_cifar(cifar10(), source)
    assert list(keras_datasets_folder().iterdir()) == [source.parent]


def test_another_archive_is_not_unpacked(tmp_path, monkeypatch):
    archive = packed(tmp_path / "server", monkeypatch)
    archive.write_bytes(archive.read_bytes() + b"more")
    with pytest.raises(UserError, match=r"downloaded \(.* does not match .*\): download file"):
        cifar10()
    assert list(keras_datasets_folder().iterdir()) == []


def test_cifar10_without_a_network(tmp_path):
    words = r"^CIFAR-10 was not found and could not be downloaded \(.*\): download file://\S+/cifar"
    with pytest.raises(UserError, match=words) as caught:
        cifar10()
    assert "\n" not in str(caught.value)


def test_a_folder_without_cifar10_is_an_error(tmp_path):
    with pytest.raises(UserError, match="none' has no data_batch_1.*, expected the 6 files"):
        cifar10(data_dir=tmp_path / "none")
    (fill(tmp_path / "given" / CIFAR10_FOLDER, CIFAR) / "data_batch_2").unlink()
    with pytest.raises(UserError, match=f"{CIFAR10_FOLDER}' has no data_batch_2, expected"):
        cifar10(data_dir=tmp_path / "given")


def test_a_damaged_batch_is_an_error(tmp_path):
    damaged = fill(tmp_path / "given", CIFAR) / "data_batch_2"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(UserError, match=rf"^{damaged} cannot be read \(the content has md5 "):
        cifar10(data_dir=tmp_path / "given")


ODD = {
    "images of another size": pickle.dumps({b"labels": [1], b"data": np.zeros((1, 9), np.uint8)}),
    "something else": pickle.dumps([1, 2]),
    "no pickle": b"<html>",
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_pickles_are_refused(odd, tmp_path, monkeypatch):
    folder = fill(tmp_path / "given", CIFAR | {"test_batch": ODD[odd]})
    digests = image_files.CIFAR10_FILES | {"test_batch": hashlib.md5(ODD[odd]).hexdigest()}
    monkeypatch.setattr(image_files, "CIFAR10_FILES", digests)
    with pytest.raises(UserError, match="test_batch cannot be read"):
        cifar10(data_dir=folder)


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/none":
            self.send_error(404)
        elif self.path == "/garbage":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
        elif self.path != "/silent":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(bytes(999 if self.path == "/short" else 1000))

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_file_is_fetched_into_a_new_folder(url, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    target = tmp_path / "a" / "b" / "file"
    digest = hashlib.sha256(bytes(1000)).hexdigest()
    image_files._download(f"{url}/file", target, file_hash=digest)
    assert target.read_bytes() == bytes(1000)
    assert list(target.parent.iterdir()) == [target]
    # A shared cache is readable to those to whom new files are.
    (tmp_path / "other").touch()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert capsys.readouterr().out == ""
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize("path", ["none", "garbage", "silent", "short"])
def test_a_download_that_fails_leaves_nothing(path, url, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DownloadError, match=f"{url}/{path}: "):
        image_files._download(f"{url}/{path}", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(image_files, "_TIMEOUT_SECONDS", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(DownloadError, match="timed out"),
    ):
        image_files._download(f"http://127.0.0.1:{mute.getsockname()[1]}/x", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


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


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(DownloadError, match="taken"):
        image_files._download("file:///x", tmp_path / "taken" / "file")


def test_the_notice_lies_beside_the_sample():
    notice = resources.files("kdist.data") / "fashion_mnist_sample.LICENSE"
    assert "MIT License" in notice.read_text(encoding="utf-8")
