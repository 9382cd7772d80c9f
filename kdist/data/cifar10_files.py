"""CIFAR-10, from the files of its Python or binary version: a folder, an archive or a download."""

import hashlib
import io
import os
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError, error_text
from .image_data import ImageData
from .sources import HINT, DownloadError, announced, check_readable, download, keras_datasets

NAME = "CIFAR-10"
CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# Where keras.datasets.cifar10 downloads from, a page that says what it is.
URL = "https://www.cs.toronto.edu/~kriz/"

Bytes = npt.NDArray[np.uint8]
_CHANNELS, _PIXELS = 3, 32 * 32  # of an image: a red, a green and a blue plane, row by row
_BYTES = _CHANNELS * _PIXELS


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of CIFAR-10: five files with training images, and one with the test images.

    Attributes:
        files: Name and MD5 of each; no checksums of single binary files were published.
        folder: Their folder in the archive.
        archive: Name of the archive of all of them.
        sha256: Of the archive.
        images: In each file.
    """

    files: Mapping[str, str | None]
    folder: str
    archive: str
    sha256: str
    images: int = 10_000


PYTHON = Version(
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
BINARY = Version(
    files={f"{name}.bin": None for name in PYTHON.files},
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)


def cifar10(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    announce: Callable[[str], object] = print,
) -> ImageData:
    """Load CIFAR-10: photographs, (32, 32, 3), in 10 classes.

    The 50,000 training and 10,000 test images are read from the Keras cache (`$KERAS_HOME` or
    `~/.keras`), or from the archive of the Python version, which is downloaded into it (170 MB).
    The Python version's files are pickles, of which only bytes, lists, dictionaries and NumPy
    arrays are read, so nothing else in them can run. One line says which source was used.

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
    python: Version = PYTHON,
    binary: Version = BINARY,
) -> ImageData:
    """Load CIFAR-10 as `cifar10` does, with all sources as arguments."""
    versions = (python, binary)
    # Keras 3 unpacks into a folder of another name.
    places = [cache, cache / f"{python.folder}-target"]
    if data_dir is not None:
        check_readable(Path(data_dir))
        places = [Path(data_dir)]
    found = next((one for place in places if (one := _find(place, versions))), None)
    if found is None and data_dir is not None:
        raise UserError(_not_there(Path(data_dir), versions))
    if found is None:
        found = python, cache / python.archive
        _download(python, url + python.archive, found[1], announce)
    return announced(_read(*found), announce)


def _find(path: Path, versions: tuple[Version, ...]) -> tuple[Version, Path] | None:
    """Return a version and where it is: its folder, which may be `path`, or else its archive."""
    for version in versions:
        for folder in (path, path / version.folder):
            if not _missing(folder, version):
                return version, folder
    for version in versions:
        for archive in (path, path / version.archive):
            if archive.name == version.archive and os.path.isfile(archive):
                return version, archive
    return None


def _missing(folder: Path, version: Version) -> list[Path]:
    return [folder / name for name in version.files if not os.path.isfile(folder / name)]


def _not_there(given: Path, versions: tuple[Version, ...]) -> str:
    problem = "does not exist"
    if os.path.isdir(given):
        lacks = [
            _missing(folder, version)
            for version in versions
            for folder in (given, given / version.folder)
        ]
        least = [str(path.relative_to(given)) for path in min(lacks, key=len)]
        problem = f"has no {', '.join(least)}"
    elif os.path.exists(given):
        problem = "is neither a folder nor an archive of this name"
    archives = " or ".join(version.archive for version in versions)
    return (
        f"data_dir {str(given)!r} {problem}; expected the {len(versions[0].files)} files of "
        f"{NAME}, or {archives}. Pass their folder, or omit data_dir to have them found or "
        "downloaded."
    )


def _download(
    version: Version, address: str, target: Path, announce: Callable[[str], object]
) -> None:
    announce(f"{NAME}: downloading 170 MB from {address}")
    try:
        download(address, target, sha256=version.sha256)
    except DownloadError as error:
        raise UserError(
            f"{NAME} was not found and could not be downloaded ({error}): download {address} "
            "elsewhere, and pass the file or its folder as data_dir, or put it into "
            f"{target.parent}"
        ) from error


def _read(version: Version, path: Path) -> ImageData:
    """Read and verify the files of a folder that has all of them, or of an archive."""
    read = {}
    for name, origin, content in _contents(version, path):
        expected = version.files[name]
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if expected not in (None, digest):
            raise _another(origin, f"the content has MD5 {digest}; expected {expected}")
        parse = parse_binary if expected is None else parse_pickled
        read[name] = parse(content, images=version.images, origin=origin)
    missing = [name for name in version.files if name not in read]
    if missing:
        raise UserError(f"{path}: has no {', '.join(missing)}. {HINT}")
    *training, test = (read[name] for name in version.files)
    return ImageData(
        name=NAME,
        source=str(path),
        train_images=_by_pixel([pixels for _, pixels in training]),
        train_labels=_balanced([labels for labels, _ in training], f"{path}: training images"),
        test_images=_by_pixel([test[1]]),
        test_labels=_balanced([test[0]], f"{path}: test images"),
        class_names=CLASS_NAMES,
    )


def _contents(version: Version, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Give the name of each file, what to call it in an error, and its content."""
    try:
        if os.path.isdir(path):
            for name in version.files:
                yield name, str(path / name), (path / name).read_bytes()
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != version.sha256:
            raise _another(str(path), f"has SHA-256 {digest}; expected {version.sha256}")
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                content = archive.extractfile(member)  # None for a folder
                if folder == version.folder and name in version.files and content:
                    yield name, f"{path}: {name}", content.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(
            f"{path}: cannot be read ({error_text(error)}); expected the files of {NAME}. {HINT}"
        ) from error


def parse_binary(content: bytes, *, images: int, origin: str) -> tuple[Bytes, Bytes]:
    """Read a file of the binary version: for each image a byte with its label, and its pixels.

    Args:
        content: The whole file.
        images: The number that it must have.
        origin: What to call the file in an error.

    Returns:
        Labels, (images,), and pixels, (images, 3072), uint8.

    Raises:
        UserError: When its length is another one, or a label is above 9.

    Source:
        "Binary version" of https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    length = images * (1 + _BYTES)
    if len(content) != length:
        raise UserError(
            f"{origin}: holds {len(content):,} bytes; expected {length:,}, {images:,} images of "
            f"{1 + _BYTES:,} bytes. {HINT}"
        )
    records = np.frombuffer(content, np.uint8).reshape(images, 1 + _BYTES)
    return _checked_labels(records[:, 0], origin), records[:, 1:]


def parse_pickled(content: bytes, *, images: int, origin: str) -> tuple[Bytes, Bytes]:
    """Read a file of the Python version, a pickle, which can only make plain data and arrays.

    Args:
        content: The whole file: a dictionary with `labels`, a list, and `data`, an array.
        images: The number that it must have.
        origin: What to call the file in an error.

    Returns:
        As `parse_binary`.

    Raises:
        UserError: When it is damaged, names a class or function that such a file does not need, or
            has other labels or pixels.

    Source:
        "Python version" of https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    expected = f"expected a pickle with {images:,} labels and (images, {_BYTES}) bytes. {HINT}"
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # of any kind, where a pickle is damaged
        raise UserError(f"{origin}: cannot be read ({error}); {expected}") from error
    values = batch if isinstance(batch, dict) else {}
    labels, pixels = (values.get(key.encode(), values.get(key)) for key in ("labels", "data"))
    if not isinstance(labels, list) or not isinstance(pixels, np.ndarray):
        raise UserError(f"{origin}: is a pickle without labels and data; {expected}")
    if len(labels) != images or pixels.shape != (images, _BYTES) or pixels.dtype != np.uint8:
        raise UserError(
            f"{origin}: has {len(labels):,} labels and data of shape {pixels.shape}, "
            f"{pixels.dtype}; {expected}"
        )
    if not all(isinstance(label, int) for label in labels):
        raise UserError(f"{origin}: a label is no integer; {expected}")
    return _checked_labels(np.array(labels), origin).astype(np.uint8), pixels


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles data and arrays of NumPy; nothing else can be named, so nothing else is called."""

    _ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(
                f"it would call {f'{module}.{name}'[:100]!r}, which no data needs"
            )
        return super().find_class(module, name)


def _checked_labels(labels: Any, origin: str) -> Any:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(CLASS_NAMES)))
    if len(wrong):
        raise UserError(
            f"{origin}: image {wrong[0]} has the label {labels[wrong[0]]}; expected 0 to "
            f"{len(CLASS_NAMES) - 1}. {HINT}"
        )
    return labels


def _balanced(parts: list[Bytes], origin: str) -> npt.NDArray[np.int32]:
    """Labels of files as one array, of which each class has as many."""
    labels = np.concatenate(parts)
    counts = np.bincount(labels, minlength=len(CLASS_NAMES))
    expected = len(labels) // len(CLASS_NAMES)
    if (counts != expected).any():
        raise _another(
            origin, f"{counts.min():,} to {counts.max():,} are of a class; expected {expected:,}"
        )
    return labels.astype(np.int32)


def _by_pixel(parts: list[Bytes]) -> Bytes:
    """Images of files, (images, 3072), as one array that has the colors of a pixel together."""
    result = np.empty((sum(map(len, parts)), _PIXELS, _CHANNELS), np.uint8)
    end = 0
    for part in parts:
        begin, end = end, end + len(part)
        for channel in range(_CHANNELS):  # a quarter of the time of one transposition
            result[begin:end, :, channel] = part.reshape(-1, _CHANNELS, _PIXELS)[:, channel]
    return result.reshape(-1, 32, 32, _CHANNELS)


def _another(origin: str, why: str) -> UserError:
    return UserError(f"{origin}: {why}, so it is damaged or another data set. {HINT}")
