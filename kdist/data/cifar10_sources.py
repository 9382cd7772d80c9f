"""Load CIFAR-10 from a folder, a cache or the network."""

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from . import cifar10_files
from .archive import verify_archive
from .download import DownloadError, download
from .image_data import ImageData
from .sources import announced, check_readable, keras_datasets

# Where keras.datasets.cifar10 downloads from, a page that says what it is.
URL = "https://www.cs.toronto.edu/~kriz/"


def cifar10(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    announce: Callable[[str], object] = print,
) -> ImageData:
    """Load CIFAR-10: photographs, (32, 32, 3), in 10 classes.

    The 50,000 training and 10,000 test images are read from the Keras cache (`$KERAS_HOME` or
    `~/.keras`), or from the archive of the Python version, which is downloaded into it (170 MB).
    The Python version's files are pickles, which are read without unpickling, so nothing in them
    can run. One line says which source was used.

    Args:
        data_dir: Folder with the six files of the Python version (`data_batch_1` … `test_batch`)
            or of the binary version (`data_batch_1.bin` …), or with an archive of them,
            `cifar-10-python.tar.gz` or `cifar-10-binary.tar.gz`; or that archive. No other source
            is tried then.
        announce: Called with the line that names the source, and with one before a download.

    Raises:
        UserError: If the data set is neither found nor can be downloaded, if `data_dir` does not
            contain it, or a file is unreadable, truncated, damaged or has the wrong checksum. No
            checksums of single binary files were published, so for these the size, the labels, and
            the number of images of each class are checked.

    Example:
        ```python
        data = kdist.data.cifar10(data_dir="cifar-10-batches-py")
        data.train_images.shape  # (50000, 32, 32, 3)
        ```

    Source:
        Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images",
        https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    return find_cifar10(data_dir=data_dir, announce=announce, cache=keras_datasets(), url=URL)


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
    places = _in_cache(cache, versions)
    if data_dir is not None:
        check_readable(Path(data_dir))
        places = [Path(data_dir)]
    found = next((one for place in places if (one := cifar10_files.find(place, versions))), None)
    if found is None and data_dir is not None:
        raise UserError(_no_cifar10(Path(data_dir), versions))
    version, path = found or (versions[0], cache / versions[0].archive.name)
    if found is None:
        _download_cifar10(path, version, url, announce, timeout_s)
    data = cifar10_files.read_version(version, path)
    return announced(data, announce)


def _in_cache(cache: Path, versions: tuple[cifar10_files.Version, ...]) -> list[Path]:
    # Keras 3 unpacks into a folder of another name.
    return [cache, cache / f"{versions[0].folder}-target"]


def _no_cifar10(given: Path, versions: tuple[cifar10_files.Version, ...]) -> str:
    problem = "does not exist"
    if os.path.isdir(given):
        candidates = [
            (folder, cifar10_files.missing_files(folder, version))
            for version in versions
            for folder in (given, given / version.folder)
        ]
        folder, missing = min(candidates, key=lambda one: len(one[1]))
        inside = "" if folder == given else f", in its {folder.name},"
        problem = f"has{inside} no {', '.join(missing)}"
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
        verify_archive(
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
