"""The data sets of `kdist train --dataset`. To add one, add its name and its entry here."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import UserError

if TYPE_CHECKING:
    from .image_data import ImageData

Announce = Callable[[str], object]
Folder = str | os.PathLike[str]
DatasetName = Literal["fashion_mnist", "cifar10", "sample"]

# NumPy is imported by the functions: the command line asks for the names alone.


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set that can be chosen by its name.

    Attributes:
        training_images: Number of training images in the full set; no batch has more.
        test_images: Number of its test images.
        load: Returns the images, from a folder or, if that is `None`, from where it finds them; it
            calls its second argument with a line that names their source.
        is_embedded: Whether it comes with kdist. Then it has no folder, and is loaded at once.
    """

    training_images: int
    test_images: int
    load: Callable[[Folder | None, Announce], "ImageData"]
    is_embedded: bool = False


def _fashion_mnist(data_dir: Folder | None, announce: Announce) -> "ImageData":
    from .sources import fashion_mnist

    return fashion_mnist(data_dir=data_dir, announce=announce)


def _cifar10(data_dir: Folder | None, announce: Announce) -> "ImageData":
    from .sources import cifar10

    return cifar10(data_dir=data_dir, announce=announce)


def _sample(_: Folder | None, announce: Announce) -> "ImageData":
    from .sources import fashion_mnist

    return fashion_mnist(sample=True, announce=announce)


DATASETS: dict[DatasetName, Dataset] = {
    "fashion_mnist": Dataset(training_images=60_000, test_images=10_000, load=_fashion_mnist),
    "cifar10": Dataset(training_images=50_000, test_images=10_000, load=_cifar10),
    "sample": Dataset(training_images=10_000, test_images=2_000, load=_sample, is_embedded=True),
}
MOST_IMAGES = max(one.training_images for one in DATASETS.values())
"""Of all data sets; a larger batch would be cut to them."""


def check_data_dir(dataset: DatasetName, data_dir: Folder | None) -> None:
    """Reject a folder for a data set that has none.

    Raises:
        UserError: Both are given.
    """
    if data_dir is not None and DATASETS[dataset].is_embedded:
        others = [name for name, one in DATASETS.items() if not one.is_embedded]
        raise UserError(
            f"received dataset={dataset} and data_dir={os.fspath(data_dir)}: the {dataset} is"
            f" embedded; remove data_dir, or choose dataset={' or '.join(others)}"
        )


def needs_no_download(dataset: DatasetName, data_dir: Folder | None) -> bool:
    """Whether the data set is on this machine for certain, or an error of the user."""
    return data_dir is not None or DATASETS[dataset].is_embedded
