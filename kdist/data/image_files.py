"""Fashion-MNIST and CIFAR-10, by `keras.datasets`, and the sample in kdist."""

import contextlib
import fcntl
import gzip
import http.client
import io
import os
import socket
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .image_data import ImageData

Announce = Callable[[str], object]
Array = npt.NDArray[Any]

SAMPLE = "the embedded sample"
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
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
# The download source of keras.datasets.cifar10, and the name that Keras gives to the file.
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_FILE = "cifar-10-batches-py-target_archive"
_TIMEOUT_SECONDS = 10.0


def load_images(
    dataset: str,
    *,
    subset: int | None = None,
    may_use_sample: bool = True,
    announce: Announce = print,
) -> ImageData:
    """Load the images of a run.

    Args:
        dataset: `"fashion_mnist"`, `"cifar10"` or `"sample"`.
        subset: Number of training images; `None` for all.
        may_use_sample: Whether the embedded sample may replace a data set that cannot be
            downloaded. `False` for runs that are compared, which have to train on the same data.
        announce: Called with a line that names the source of the images.

    Raises:
        UserError: The images cannot be found, or `subset` exceeds the number of training images.
    """
    if dataset == "cifar10":
        data = cifar10(announce=announce)
    else:
        data = fashion_mnist(sample=dataset == "sample", announce=announce)
    if data.source == SAMPLE and dataset != "sample" and not may_use_sample:
        raise UserError(
            f"{dataset} was not found and could not be downloaded: put its files into"
            f" {keras_datasets_folder() / 'fashion-mnist'}, or pass --dataset sample to train all"
            " runs on the embedded sample"
        )
    return data if subset is None else data.subset(subset)


def fashion_mnist(*, sample: bool = False, announce: Announce = print) -> ImageData:
    """Load Fashion-MNIST: images of clothing, (28, 28, 1), in 10 classes.

    The full set (60,000 training and 10,000 test images) is loaded by
    `keras.datasets.fashion_mnist`, which downloads it (31 MB) if it is not in Keras's folder
    (`$KERAS_HOME` or `~/.keras`). If the download fails, the sample in kdist is used: the first
    10,000 training and the first 2,000 test images. A line names the source.

    Args:
        sample: Use the embedded sample, without looking for the full set.
        announce: Called with the line that names the source.

    Raises:
        UserError: A file in Keras's folder is damaged.

    Example:
        >>> data = kdist.data.fashion_mnist(sample=True)
        Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)

    Source:
        Xiao, Rasul and Vollgraf 2017, https://arxiv.org/abs/1708.07747.
    """
    if sample:
        return _announce_images(read_sample(), announce)
    try:
        arrays = _load_by_keras("fashion_mnist")
    except DownloadError as error:
        why = f"; the full set was not found and could not be downloaded ({error})"
        return _announce_images(read_sample(), announce, why)
    except Exception as error:  # a damaged file raises exceptions of any type
        raise UserError(
            f"Fashion-MNIST cannot be read ({error}): remove"
            f" {keras_datasets_folder() / 'fashion-mnist'}, so that it is downloaded again, or use"
            " --dataset sample"
        ) from error
    return _announce_images(_make_fashion_mnist("keras.datasets", *arrays), announce)


def read_sample() -> ImageData:
    """Read the embedded sample: the first 10,000 training and the first 2,000 test images."""
    embedded = resources.files("kdist.data") / "fashion_mnist_sample.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        parts = ("train_images", "train_labels", "test_images", "test_labels")
        return _make_fashion_mnist(SAMPLE, *(arrays[part] for part in parts))


def _make_fashion_mnist(
    source: str, train_images: Array, train_labels: Array, test_images: Array, test_labels: Array
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


def cifar10(*, announce: Announce = print) -> ImageData:
    """Load CIFAR-10: photographs, (32, 32, 3), in 10 classes.

    The 50,000 training and 10,000 test images are loaded by `keras.datasets.cifar10`, which
    downloads them (170 MB) if they are not in Keras's folder (`$KERAS_HOME` or `~/.keras`). A line
    names the source.

    Args:
        announce: Called with the line that names the source, and with a line before a download.

    Raises:
        UserError: The data set is not found and cannot be downloaded, or a file is damaged.

    Example:
        ```python
        data = kdist.data.cifar10()
        data.train_images.shape  # (50000, 32, 32, 3)
        ```

    Source:
        Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images",
        https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    archive = keras_datasets_folder() / CIFAR10_FILE
    if not archive.exists():
        announce(f"CIFAR-10: downloading 170 MB from {CIFAR10_URL}")
    try:
        train_images, train_labels, test_images, test_labels = _load_by_keras("cifar10")
    except Exception as error:  # a damaged file raises exceptions of any type
        cause = "was not found and could not be downloaded"
        if not isinstance(error, DownloadError):
            cause = "cannot be read"
        raise UserError(
            f"CIFAR-10 {cause} ({error}): download {CIFAR10_URL} on another machine, and save the"
            f" file as {archive}, or use --dataset sample"
        ) from error
    data = ImageData(
        name="CIFAR-10",
        source="keras.datasets",
        train_images=_put_channels_last(train_images),
        train_labels=train_labels.ravel().astype(np.int32),
        test_images=_put_channels_last(test_images),
        test_labels=test_labels.ravel().astype(np.int32),
        class_names=CIFAR10_CLASSES,
    )
    return _announce_images(data, announce)


def _put_channels_last(images: Array) -> Array:
    """Return images whose last axis has the channels, for any image data format of Keras."""
    if images.shape[-1] != 3:
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def keras_datasets_folder() -> Path:
    """Return the folder in which `keras.datasets` stores its files, without importing Keras."""
    folder = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        folder = Path("/tmp/.keras")  # noqa: S108 - Keras's own choice
    return folder / "datasets"


class DownloadError(Exception):
    """A failed download, with the reason in a few words."""


def _load_by_keras(name: str) -> tuple[Array, Array, Array, Array]:
    """Return training images and labels, and test images and labels, of a data set of Keras.

    Raises:
        DownloadError: The data set could not be downloaded.
        Exception: A file is damaged.
    """
    import keras  # inside the function, as the sample needs only NumPy

    earlier_timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)  # Keras would wait for minutes
    try:
        with _lock_keras_datasets(), contextlib.redirect_stdout(io.StringIO()):  # progress lines
            train, test = getattr(keras.datasets, name).load_data()
    except Exception as error:
        if _is_download_error(error):
            raise DownloadError(str(error)) from error
        raise
    finally:
        socket.setdefaulttimeout(earlier_timeout)
    return (*train, *test)


def _is_download_error(error: Exception) -> bool:
    """Whether `error` is of a download, and not of a damaged file."""
    # Keras raises plain `Exception` for the errors of URLs. Timeouts, a full disk and a connection
    # that breaks off are an `OSError`; `gzip.BadGzipFile`, of a damaged file, is one, too.
    if isinstance(error, gzip.BadGzipFile):
        return False
    return type(error) is Exception or isinstance(error, OSError | http.client.HTTPException)


@contextlib.contextmanager
def _lock_keras_datasets() -> Iterator[None]:
    """Let processes load data sets one after another.

    Keras downloads and unpacks files in the place where another process reads them.
    """
    folder = keras_datasets_folder()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a folder that is read-only or cannot be locked
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(folder / ".kdist.lock", "w", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _announce_images(data: ImageData, announce: Announce, why: str = "") -> ImageData:
    announce(
        f"{data.name}: {data.source} ({len(data.train_images):,} training and"
        f" {len(data.test_images):,} test images){why}"
    )
    return data
