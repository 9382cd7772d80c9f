"""The files of CIFAR-10's two versions, binary and Python, in a folder or an archive."""

import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import UserError, error_text
from .archive import Archive, verify_archive
from .cifar10_formats import PIXELS, SHAPE, Bytes, parse_binary, parse_pickled
from .image_data import ImageData
from .sources import HINT

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


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of CIFAR-10: five files with training images, and one with the test images.

    Attributes:
        files: Name and MD5 of each; no checksums of single binary files were published.
        folder: Their folder in the archive.
        archive: All of them.
        is_pickled: Whether they are pickles, as those of the Python version.
        images: In each file.
    """

    files: Mapping[str, str | None]
    folder: str
    archive: Archive
    is_pickled: bool
    images: int = 10_000

    @property
    def most_bytes(self) -> int:
        """The largest size of a file; pickles also have the names of the images."""
        return self.images * (1 + PIXELS + 64 * self.is_pickled) + 4096 * self.is_pickled


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
    archive=Archive(
        name="cifar-10-python.tar.gz",
        size=170_498_071,
        algorithm="sha256",
        checksum="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    is_pickled=True,
)
BINARY = Version(
    files={f"{name}.bin": None for name in PYTHON.files},
    folder="cifar-10-batches-bin",
    archive=Archive(
        name="cifar-10-binary.tar.gz",
        size=170_052_171,
        algorithm="md5",
        checksum="c32a1d4ab5d03f1284b67883e8d87530",
    ),
    is_pickled=False,
)
VERSIONS = (PYTHON, BINARY)


def find(path: Path, versions: tuple[Version, ...] = VERSIONS) -> tuple[Version, Path] | None:
    """Find a version in a folder, its subfolders of the archives' names, or an archive.

    Args:
        path: The folder or archive.
        versions: Those that may be there.

    Returns:
        The version, and the folder of its files or its archive; `None` if there is none. A folder
        that is complete is preferred, then an archive of the published size.
    """
    for version in versions:
        for folder in (path, path / version.folder):
            if not missing_files(folder, version):
                return version, folder
    archives = [
        (version, archive)
        for version in versions
        for archive in (path, path / version.archive.name)
        if archive.name == version.archive.name and os.path.isfile(archive)
    ]
    whole = [one for one in archives if one[1].stat().st_size == one[0].archive.size]
    return next(iter([*whole, *archives]), None)


def missing_files(folder: Path, version: Version) -> list[str]:
    """Return the names of the files that are missing from a folder."""
    return [name for name in version.files if not os.path.isfile(folder / name)]


def read_version(version: Version, path: Path) -> ImageData:
    """Read and verify the files of a folder that has all of them, or of an archive.

    Raises:
        UserError: If a file is unreadable, truncated, too long, damaged or has another checksum.
    """
    read = {}
    for name, origin, content in _contents(version, path):
        if (expected := version.files[name]) is not None:
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if digest != expected:
                raise _another(origin, f"the content has MD5 {digest}; expected {expected}")
        parse = parse_pickled if version.is_pickled else parse_binary
        read[name] = parse(content, images=version.images, origin=origin)
    parts = [read[name] for name in version.files]
    labels = [np.concatenate([part[0] for part in some]) for some in (parts[:-1], parts[-1:])]
    for part, of_part in zip(("training", "test"), labels, strict=True):
        _check_classes(str(path), part, of_part)
    return ImageData(
        name=NAME,
        source=str(path),
        train_images=_by_pixel([pixels for _, pixels in parts[:-1]]),
        train_labels=labels[0].astype(np.int32),
        test_images=_by_pixel([parts[-1][1]]),
        test_labels=labels[1].astype(np.int32),
        class_names=CLASS_NAMES,
    )


def _check_classes(origin: str, part: str, labels: Bytes) -> None:
    counts = np.bincount(labels, minlength=len(CLASS_NAMES))
    expected = len(labels) // len(CLASS_NAMES)
    if (counts != expected).any():
        least, most = counts.min(), counts.max()
        raise _another(
            origin,
            f"there are {least:,} to {most:,} {part} images of a class; expected {expected:,}",
        )


def _another(origin: str, why: str) -> UserError:
    return UserError(f"{origin}: {why}, so it is damaged or another data set. {HINT}")


def _by_pixel(parts: list[Bytes]) -> Bytes:
    """Images of files, (images, 3072), as one array that has the colors of a pixel together."""
    channels, height, width = SHAPE
    result = np.empty((sum(map(len, parts)), height * width, channels), np.uint8)
    end = 0
    for part in parts:
        begin, end = end, end + len(part)
        for channel in range(channels):  # a quarter of the time of one transposition
            result[begin:end, :, channel] = part.reshape(-1, channels, height * width)[:, channel]
    return result.reshape(-1, height, width, channels)


def _contents(version: Version, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Give the name of each file, what to call it in an error, and its content."""
    # One byte more than expected shows that a file is too long, however long it is.
    limit = version.most_bytes + 1
    try:
        if os.path.isdir(path):
            for name in version.files:
                with open(path / name, "rb") as file:
                    yield name, str(path / name), file.read(limit)
            return
        verify_archive(path, version.archive)
        with tarfile.open(path, "r|gz") as archive:
            found = set()
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder == version.folder and name in version.files and member.isfile():
                    found.add(name)
                    content: IO[bytes] = archive.extractfile(member)  # type: ignore[assignment]
                    yield name, f"{path}: {name}", content.read(limit)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(
            f"{path}: cannot be read ({error_text(error)}); expected the files of {NAME}. {HINT}"
        ) from error
    missing = [name for name in version.files if name not in found]
    if missing:
        raise UserError(f"{path}: has no {', '.join(missing)}. {HINT}")
