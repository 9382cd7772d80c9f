"""Load data sets from a folder, a cache, the network or the embedded sample."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError
from . import cifar10_files
from .download import DownloadError, download
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

# Debian's package dataset-fashion-mnist.
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# Where keras.datasets.fashion_mnist downloads from.
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
# Where keras.datasets.cifar10 does, a page that says what it is.
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"


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


def cifar10(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    announce: Callable[[str], object] = print,
) -> ImageData:
    """Load CIFAR-10: photographs, (32, 32, 3), in 10 classes.

    The 50,000 training and 10,000 test images are read from the Keras cache (`$KERAS_HOME` or
    `~/.keras`), or from the archive of the Python version, which is downloaded into it (170 MB).
    The Python version's files are pickles, which are read without unpickling: nothing in them is
    run. One line says which source was used.

    Args:
        data_dir: Folder with the six files of the Python version (`data_batch_1` … `test_batch`)
            or of the binary version (`data_batch_1.bin` …), or with an archive of them,
            `cifar-10-python.tar.gz` or `cifar-10-binary.tar.gz`; or that archive. No other source
            is tried then.
        announce: Called with the line that names the source, and with one before a download.

    Raises:
        UserError: If the set is neither found nor can be downloaded, if `data_dir` does not contain
            it, or a file is unreadable, truncated, damaged or has the wrong checksum. No checksums
            of single binary files were published: of these the size, the labels, and the number of
            images of each class are checked.

    Example:
        ```python
        data = kdist.data.cifar10(data_dir="cifar-10-batches-py")
        data.train_images.shape  # (50000, 32, 32, 3)
        ```

    Source:
        Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images",
        https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    return find_cifar10(
        data_dir=data_dir, announce=announce, cache=keras_datasets(), url=CIFAR10_URL
    )


def keras_datasets() -> Path:
    """Return the folder in which `keras.datasets` stores its files."""
    home = os.path.expanduser("~")
    # Keras falls back to /tmp too; each finds what the other has downloaded.
    base = home if os.access(home, os.W_OK) else "/tmp"  # noqa: S108
    keras_home = os.environ.get("KERAS_HOME") or os.path.join(base, ".keras")
    return Path(os.path.expanduser(keras_home), "datasets")


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


def find_cifar10(
    *,
    data_dir: str | os.PathLike[str] | None,
    announce: Callable[[str], object],
    cache: Path,
    url: str,
    timeout_s: float = 10.0,
    versions: tuple[cifar10_files.Version, ...] = cifar10_files.VERSIONS,
) -> ImageData:
    """Load CIFAR-10 as `cifar10` does, with all sources as arguments."""
    # Keras 3 unpacks into a folder of another name.
    places = [cache, cache / f"{versions[0].folder}-target"]
    if data_dir is not None:
        _check_readable(Path(data_dir))
        places = [Path(data_dir)]
    found = next((one for place in places if (one := cifar10_files.find(place, versions))), None)
    if found is None and data_dir is not None:
        raise UserError(_no_cifar10(Path(data_dir), versions))
    version, path = found or (versions[0], cache / versions[0].archive.name)
    if found is None:
        _download_cifar10(path, version, url, announce, timeout_s)
    data = cifar10_files.read_version(version, path)
    return _announced(data, announce)


def _no_cifar10(given: Path, versions: tuple[cifar10_files.Version, ...]) -> str:
    problem = "does not exist"
    if os.path.isdir(given):
        version = min(versions, key=lambda one: len(cifar10_files.missing_files(given, one)))
        problem = f"has no {', '.join(cifar10_files.missing_files(given, version))}"
    elif os.path.exists(given):
        problem = "is neither a folder nor an archive of this name"
    archives = " or ".join(version.archive.name for version in versions)
    return (
        f"data_dir {str(given)!r} {problem}; expected the {len(versions[0].files)} files of "
        f"{cifar10_files.NAME}, or {archives}. Pass their folder, or omit data_dir to have them "
        "found or downloaded."
    )


def _download_cifar10(
    target: Path,
    version: cifar10_files.Version,
    url: str,
    announce: Callable[[str], object],
    timeout_s: float,
) -> None:
    address = f"{url}{version.archive.name}"

    def verify(path: Path) -> None:
        cifar10_files.verify_archive(
            path,
            version.archive,
            origin=address,
            hint="The download was deleted. Try again from another network, or pass a folder with "
            "the files as data_dir.",
        )

    def begin() -> None:
        megabytes = round(version.archive.size / 1e6)
        announce(f"{cifar10_files.NAME}: downloading {megabytes} MB from {address}")

    try:
        download(address, target, verify=verify, timeout_s=timeout_s, begin=begin)
    except DownloadError as error:
        raise UserError(
            f"{cifar10_files.NAME} was not found and could not be downloaded ({error}): download "
            f"{address} elsewhere, and pass the file or its folder as data_dir, or put it into "
            f"{target.parent}"
        ) from error


def _check_readable(folder: Path) -> None:
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(
            f"data_dir {str(folder)!r} cannot be read: change its permissions (chmod u+rx), or "
            "omit data_dir to have the files found or downloaded."
        )


def _checked(folder: Path, files: tuple[IdxFile, ...]) -> Path:
    _check_readable(folder)
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
    return _announced(read_folder(folder, files), announce)


def _announced(data: ImageData, announce: Callable[[str], object]) -> ImageData:
    announce(
        f"{data.name}: {len(data.train_images):,} training and {len(data.test_images):,} test "
        f"images from {data.source}"
    )
    return data


def _sample(announce: Callable[[str], object], why: str = "") -> ImageData:
    data = read_sample()
    announce(
        f"{data.name}: {data.source} ({len(data.train_images):,} training and "
        f"{len(data.test_images):,} test images){why}"
    )
    return data
