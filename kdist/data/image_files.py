"""Fashion-MNIST and CIFAR-10: from a folder, Keras's cache, a download, or kdist's sample."""

import contextlib
import gzip
import hashlib
import io
import os
import pickle
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .image_data import ImageData

Folder = str | os.PathLike[str]
Bytes = npt.NDArray[np.uint8]

SAMPLE = "the embedded sample"
# Download source of keras.datasets.fashion_mnist.
FASHION_MNIST_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
# SHA-256 of each file's uncompressed content.
FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
FASHION_MNIST_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# Download source of keras.datasets.cifar10, and the folder of its unpacked files.
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
CIFAR10_FOLDER = "cifar-10-batches-py"
# MD5 of each file.
CIFAR10_FILES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_TIMEOUT_SECONDS = 10.0


def fashion_mnist(
    *,
    data_dir: Folder | None = None,
    sample: bool = False,
    announce: Callable[[str], object] = print,
) -> ImageData:
    """Load Fashion-MNIST: images of clothing, (28, 28, 1), in 10 classes.

    The full set (60,000 training and 10,000 test images) is read from the Keras cache
    (`$KERAS_HOME` or `~/.keras`), or downloaded (31 MB) into the cache. If the download fails, the
    sample in kdist is used: the first 10,000 training and the first 2,000 test images. A line names
    the source.

    Args:
        data_dir: Folder with the four files of the full set, `train-images-idx3-ubyte.gz` and so
            on, as the only source.
        sample: Use the embedded sample, without looking for the full set.
        announce: Called with the line that names the source.

    Raises:
        UserError: `data_dir` does not contain the set, or a file is unreadable or has the wrong
            checksum.

    Examples:
        >>> data = kdist.data.fashion_mnist(sample=True)
        Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)

    Source:
        Xiao, Rasul and Vollgraf 2017, https://arxiv.org/abs/1708.07747.
    """
    if sample:
        return _announce_images(read_sample(), announce)
    folder = keras_datasets_folder() / "fashion-mnist" if data_dir is None else Path(data_dir)
    names = [f"{name}.gz" for name in FASHION_MNIST_FILES]
    missing = [name for name in names if not os.path.isfile(folder / name)]
    if missing and data_dir is not None:
        raise _missing_files_error(folder, missing, "the 4 files of Fashion-MNIST")
    try:
        for name in missing:
            _download(f"{FASHION_MNIST_URL}{name}", folder / name, check=_read_idx)
    except DownloadError as error:
        why = f"; the full set was not found and could not be downloaded ({error})"
        return _announce_images(read_sample(), announce, why)
    arrays = []
    for name in names:
        with _explain_damage(folder / name):
            arrays.append(_read_idx(folder / name))
    return _announce_images(_make_image_data(str(folder), *arrays), announce)


def read_sample() -> ImageData:
    """Read the embedded sample: the first 10,000 training and the first 2,000 test images."""
    embedded = resources.files("kdist.data") / "fashion_mnist_sample.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        parts = ("train_images", "train_labels", "test_images", "test_labels")
        return _make_image_data(SAMPLE, *(arrays[part] for part in parts))


def _make_image_data(
    source: str, train_images: Bytes, train_labels: Bytes, test_images: Bytes, test_labels: Bytes
) -> ImageData:
    return ImageData(
        name="Fashion-MNIST",
        source=source,
        train_images=train_images[..., np.newaxis],
        train_labels=train_labels.astype(np.int32),
        test_images=test_images[..., np.newaxis],
        test_labels=test_labels.astype(np.int32),
        class_names=FASHION_MNIST_CLASSES,
    )


def _read_idx(path: Path) -> Bytes:
    """Read a file of Fashion-MNIST: a header of 8 bytes for labels, of 16 for images.

    Raises:
        ValueError: The uncompressed file has a different SHA-256.
    """
    content = gzip.decompress(path.read_bytes())
    _check_digest(content, "sha256", FASHION_MNIST_FILES[path.stem])
    if "images" in path.name:
        return np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28)
    return np.frombuffer(content, np.uint8, offset=8)


def cifar10(
    *, data_dir: Folder | None = None, announce: Callable[[str], object] = print
) -> ImageData:
    """Load CIFAR-10: photographs, (32, 32, 3), in 10 classes.

    The 50,000 training and 10,000 test images are read from the Keras cache (`$KERAS_HOME` or
    `~/.keras`), or downloaded (170 MB) into the cache. The files are pickles, which are opened only
    if their checksums are right. A line names the source.

    Args:
        data_dir: Folder with the six files of the Python version (`data_batch_1` … `test_batch`),
            or with their folder `cifar-10-batches-py`, as the only source.
        announce: Called with the line that names the source, and with a line before a download.

    Raises:
        UserError: The data set is not found and cannot be downloaded, `data_dir` does not contain
            the data set, or a file is unreadable or has the wrong checksum.

    Examples:
        ```python
        data = kdist.data.cifar10(data_dir="cifar-10-batches-py")
        data.train_images.shape  # (50000, 32, 32, 3)
        ```

    Source:
        Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images",
        https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    place = keras_datasets_folder() if data_dir is None else Path(data_dir)
    unpacked = place / f"{CIFAR10_FOLDER}-target"  # Keras 3 unpacks here, Keras 2 into `place`
    folders = [place, place / CIFAR10_FOLDER, unpacked / CIFAR10_FOLDER]
    missing_by_folder = [
        [name for name in CIFAR10_FILES if not os.path.isfile(folder / name)] for folder in folders
    ]
    folder, missing = min(
        zip(folders, missing_by_folder, strict=True), key=lambda pair: len(pair[1])
    )
    if missing and data_dir is not None:
        expected = f"the 6 files of CIFAR-10's Python version, or their folder {CIFAR10_FOLDER}"
        raise _missing_files_error(folder, missing, expected)
    if missing:
        announce(f"CIFAR-10: downloading 170 MB from {CIFAR10_URL}")
        try:
            _download(CIFAR10_URL, unpacked, file_hash=CIFAR10_SHA256, extract=True)
        except DownloadError as error:
            raise UserError(
                f"CIFAR-10 was not found and could not be downloaded ({error}): download"
                f" {CIFAR10_URL} on another machine, unpack the file, and pass its folder as"
                " data_dir"
            ) from error
        folder = unpacked / CIFAR10_FOLDER
    *training, test = (_read_batch(folder / name, md5) for name, md5 in CIFAR10_FILES.items())
    data = ImageData(
        name="CIFAR-10",
        source=str(folder),
        train_images=np.concatenate([images for images, _ in training]),
        train_labels=np.concatenate([labels for _, labels in training]),
        test_images=test[0],
        test_labels=test[1],
        class_names=CIFAR10_CLASSES,
    )
    return _announce_images(data, announce)


def _read_batch(path: Path, md5: str) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """Return images and labels of a file of the Python version of CIFAR-10."""
    with _explain_damage(path):
        content = path.read_bytes()
        _check_digest(content, "md5", md5)
        batch = pickle.loads(content, encoding="bytes")  # noqa: S301 - the digest is known
        planes = batch[b"data"].reshape(-1, 3, 32, 32)  # red, green and blue
        images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        return images, np.array(batch[b"labels"], np.int32)


def keras_datasets_folder() -> Path:
    """Return the folder in which `keras.datasets` stores its files, without importing Keras."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser() / "datasets"


class DownloadError(Exception):
    """A failed download, with the reason in a few words."""


def _download(
    url: str, target: Path, *, check: Callable[[Path], object] | None = None, **options: Any
) -> None:
    """Download `url` to `target`, which appears only when it is complete and checked.

    Args:
        url: The address.
        target: The file or folder to write; its folder is created if it is missing.
        check: Raises an error if the downloaded file is wrong.
        **options: Arguments of `keras.utils.get_file`.

    Raises:
        DownloadError: Network, file or disk space is missing, or the downloaded file is wrong.
    """
    import keras  # inside the function, as a data set on this machine needs only NumPy

    earlier_timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)  # Keras would wait for minutes
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Keras writes to the final file name, where a second worker would find an incomplete file.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
            with contextlib.redirect_stdout(io.StringIO()):  # lines of progress
                path = keras.utils.get_file(
                    target.name, url, cache_dir=folder, cache_subdir="", **options
                )
            if check is not None:
                check(Path(path))
            if not target.is_dir():  # a second worker may have been faster
                os.replace(path, target)
    except Exception as error:  # Keras raises no narrower exception type
        text = str(error)
        raise DownloadError(text if url in text else f"{url}: {text}") from error
    finally:
        socket.setdefaulttimeout(earlier_timeout)


def _check_digest(content: bytes, algorithm: str, expected: str) -> None:
    digest = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if digest != expected:
        raise ValueError(
            f"the content has {algorithm} {digest}, expected {expected}: the file is damaged or a"
            " different file"
        )


@contextlib.contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a damaged file raises exceptions of any type
        raise UserError(
            f"{path} cannot be read ({error}): replace or delete the file, or pass another folder"
            " as data_dir"
        ) from error


def _missing_files_error(folder: Path, missing: Sequence[str], expected: str) -> UserError:
    return UserError(
        f"data_dir {str(folder)!r} has no {', '.join(missing)}, expected {expected}: pass the"
        " folder of these files, or omit data_dir, so that kdist finds or downloads the files"
    )


def _announce_images(
    data: ImageData, announce: Callable[[str], object], why: str = ""
) -> ImageData:
    announce(
        f"{data.name}: {data.source} ({len(data.train_images):,} training and"
        f" {len(data.test_images):,} test images){why}"
    )
    return data
