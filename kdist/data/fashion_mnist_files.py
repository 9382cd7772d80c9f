"""The four files of Fashion-MNIST, and the sample of them that comes with kdist."""

import functools
import os
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .idx import read_idx
from .image_data import ImageData
from .sources import download

NAME = "Fashion-MNIST"
SAMPLE = "the embedded sample"
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


def download_missing(
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
