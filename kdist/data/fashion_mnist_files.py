"""Fashion-MNIST: a folder, a cache, a download, or the sample that comes with kdist."""

import functools
import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .image_data import ImageData
from .sources import HINT, DownloadError, announced, check_readable, download, keras_datasets

NAME = "Fashion-MNIST"
SAMPLE = "the embedded sample"
# Debian's package dataset-fashion-mnist.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# Where keras.datasets.fashion_mnist downloads from.
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
CLASS_NAMES = (
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


class IdxFile(NamedTuple):
    """One file, with the SHA-256 of its uncompressed content."""

    name: str
    shape: tuple[int, ...]
    sha256: str


FILES = (
    IdxFile(
        "train-images-idx3-ubyte",
        (60000, 28, 28),
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (60000,),
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (10000, 28, 28),
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (10000,),
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)


def fashion_mnist(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    sample: bool = False,
    announce: Callable[[str], object] = print,
) -> ImageData:
    """Load Fashion-MNIST: images of clothing, (28, 28, 1), in 10 classes.

    The full set (60,000 training and 10,000 test images) is read from the Keras cache
    (`$KERAS_HOME` or `~/.keras`) or from Debian's package `dataset-fashion-mnist`, or downloaded
    (31 MB) into the Keras cache. Without a network, the sample that comes with kdist is used: the
    first 10,000 training and the first 2,000 test images. One line says which source was used.

    Args:
        data_dir: Folder with the four files of the full set, `train-images-idx3-ubyte` and so
            on, each compressed (`.gz`) or not. No other source is tried then.
        sample: Use the embedded sample, without looking for the full set.
        announce: Called with the line that names the source.

    Raises:
        UserError: If `data_dir` does not contain the set, or a file is unreadable, truncated or has
            the wrong checksum.

    Example:
        >>> data = kdist.data.fashion_mnist(sample=True)
        Fashion-MNIST: the embedded sample (10,000 training and 2,000 test images)

    Source:
        Xiao, Rasul and Vollgraf 2017, https://arxiv.org/abs/1708.07747.
    """
    return find_fashion_mnist(
        data_dir=data_dir,
        sample=sample,
        announce=announce,
        cache=keras_datasets() / "fashion-mnist",
        system_dirs=[DEBIAN],
        url=URL,
    )


def find_fashion_mnist(
    *,
    data_dir: str | os.PathLike[str] | None,
    sample: bool,
    announce: Callable[[str], object],
    cache: Path,
    system_dirs: Sequence[Path],
    url: str,
    timeout_s: float = 10.0,
    files: tuple[IdxFile, ...] = FILES,
) -> ImageData:
    """Load Fashion-MNIST as `fashion_mnist` does, with all sources as arguments."""
    if data_dir is not None and sample:
        raise UserError(
            f"data_dir={os.fspath(data_dir)!r} and sample=True were both given; "
            "expected one of them. Remove one."
        )
    if sample:
        return _sample(announce)
    if data_dir is not None:
        return _full(_checked(Path(data_dir), files), files, announce)
    for folder in (cache, *system_dirs):
        if not missing_files(folder, files):
            return _full(folder, files, announce)
    try:
        _download_missing(cache, url, files=files, timeout_s=timeout_s)
    except DownloadError as error:
        return _sample(
            announce, f"; the full set was not found and could not be downloaded ({error})"
        )
    return _full(cache, files, announce)


def _checked(folder: Path, files: tuple[IdxFile, ...]) -> Path:
    check_readable(folder)
    missing = missing_files(folder, files)
    if missing:
        problem = f"has no {', '.join(missing)}" if os.path.isdir(folder) else "is not a folder"
        raise UserError(
            f"data_dir {str(folder)!r} {problem}; expected the {len(files)} files of {NAME}, "
            f"{files[0].name}.gz and so on, compressed or not. Pass their folder, or omit "
            "data_dir to have them found or downloaded."
        )
    return folder


def _full(folder: Path, files: tuple[IdxFile, ...], announce: Callable[[str], object]) -> ImageData:
    return announced(read_folder(folder, files), announce)


def _sample(announce: Callable[[str], object], why: str = "") -> ImageData:
    data = read_sample()
    announce(
        f"{data.name}: {data.source} ({len(data.train_images):,} training and "
        f"{len(data.test_images):,} test images){why}"
    )
    return data


def missing_files(folder: Path, files: tuple[IdxFile, ...] = FILES) -> list[str]:
    """Return the names of the files missing from a folder, compressed and uncompressed."""
    return [file.name for file in files if _find(folder, file.name) is None]


def read_folder(folder: Path, files: tuple[IdxFile, ...] = FILES) -> ImageData:
    """Read and verify the files of a folder that has all of them.

    Raises:
        UserError: If a file is unreadable, truncated, too long or has another checksum.
    """
    arrays = [
        read_idx(_find(folder, name) or folder / name, shape=shape, sha256=sha256)
        for name, shape, sha256 in files
    ]
    return _image_data(str(folder), *arrays)


def _download_missing(
    folder: Path, url: str, *, files: tuple[IdxFile, ...] = FILES, timeout_s: float
) -> None:
    """Download and verify the files that are missing from a folder.

    Raises:
        DownloadError: If a file cannot be downloaded.
        UserError: If a downloaded file has another checksum.
    """
    for name, shape, sha256 in files:
        if _find(folder, name) is None:
            address = f"{url}{name}.gz"
            verify = functools.partial(
                read_idx,
                shape=shape,
                sha256=sha256,
                origin=address,
                hint="The download was deleted. Try again from another network, pass a folder with "
                "the files as data_dir, or use the sample.",
            )
            download(address, folder / f"{name}.gz", verify=verify, timeout_s=timeout_s)


def read_sample() -> ImageData:
    """Read the embedded sample: the first 10,000 training and the first 2,000 test images."""
    embedded = resources.files("kdist.data") / "fashion_mnist_sample.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return _image_data(
            SAMPLE,
            arrays["train_images"],
            arrays["train_labels"],
            arrays["test_images"],
            arrays["test_labels"],
        )


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}.gz", folder / name)
    return next((path for path in candidates if os.path.isfile(path)), None)


def _image_data(
    source: str,
    train_images: npt.NDArray[np.uint8],
    train_labels: npt.NDArray[np.uint8],
    test_images: npt.NDArray[np.uint8],
    test_labels: npt.NDArray[np.uint8],
) -> ImageData:
    return ImageData(
        name=NAME,
        source=source,
        train_images=train_images[..., np.newaxis],
        train_labels=train_labels.astype(np.int32),
        test_images=test_images[..., np.newaxis],
        test_labels=test_labels.astype(np.int32),
        class_names=CLASS_NAMES,
    )


def read_idx(
    path: Path, *, shape: tuple[int, ...], sha256: str, origin: str = "", hint: str = HINT
) -> npt.NDArray[np.uint8]:
    """Read and verify an idx file, compressed by gzip where its name ends in `.gz`.

    Args:
        path: The file.
        shape: The dimensions it must declare.
        sha256: SHA-256 of the uncompressed file, in hexadecimal; so compressing it again, as
            distributions do, changes nothing.
        origin: What to call the file in an error, by default its path.
        hint: What to advise in an error.

    Returns:
        A read-only array of `shape`.

    Raises:
        UserError: When the file cannot be read or is not the expected one.
    """
    origin = origin or str(path)
    # One value more than expected shows that a file is too long, however long it is.
    limit = 4 + 4 * len(shape) + int(np.prod(shape)) + 1
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(limit)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{origin}: cannot be read ({error}); expected an idx file of shape {shape}. {hint}"
        ) from error
    array = parse_idx(content, shape=shape, origin=origin, hint=hint)
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise UserError(
            f"{origin}: the content has SHA-256 {digest}; expected {sha256}, so it is damaged or "
            f"another data set. {hint}"
        )
    return array


def parse_idx(
    content: bytes, *, shape: tuple[int, ...], origin: str, hint: str = HINT
) -> npt.NDArray[np.uint8]:
    """Read an idx file of unsigned bytes that must have the given shape.

    An idx file is two zero bytes, the type (8: unsigned byte), the number of dimensions, each
    dimension as a big-endian 32-bit number, and the values in row-major order.

    Args:
        content: The whole uncompressed file.
        shape: The dimensions it must declare.
        origin: What to call the file in an error.
        hint: What to advise in an error.

    Returns:
        A read-only array over `content`.

    Raises:
        UserError: When the type, the dimensions or the length is another one.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), shape=(2,), origin="labels")
        array([7, 9], dtype=uint8)

    Source:
        The last section of http://yann.lecun.com/exdb/mnist/.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    if content[: len(header)] != header:
        raise UserError(
            f"{origin}: starts with {content[: len(header)].hex() or 'nothing'}; expected "
            f"{header.hex()}, an idx file of unsigned bytes of shape {shape}. {hint}"
        )
    length = len(header) + int(np.prod(shape))
    if len(content) != length:
        raise UserError(
            f"{origin}: holds {'more than' if len(content) > length else 'only'} "
            f"{min(len(content), length):,} bytes; expected {length:,}. {hint}"
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
