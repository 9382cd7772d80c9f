"""Load Fashion-MNIST from a folder, a cache, the network or the embedded sample."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError
from .fashion_mnist_files import (
    FILES,
    NAME,
    IdxFile,
    download_missing,
    missing_files,
    read_folder,
    read_sample,
)
from .image_data import ImageData
from .sources import DownloadError, announced, check_readable, keras_datasets

# Debian's package dataset-fashion-mnist.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# Where keras.datasets.fashion_mnist downloads from.
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"


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
        download_missing(cache, url, files=files, timeout_s=timeout_s)
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
