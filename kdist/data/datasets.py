"""The data sets of `kdist train --dataset`. To add one, add its entry here.

Its name as a setting, the help and the largest batch follow from the entry.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from ..errors import UserError

if TYPE_CHECKING:
    from .image_data import ImageData

Announce = Callable[[str], object]
Folder = str | os.PathLike[str]

# NumPy is imported by the functions: the command line asks for the names alone.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set that can be chosen by its name.

    Attributes:
        title: What its images call themselves, `ImageData.name`.
        training_images: Number of training images in the full set; no batch has more.
        test_images: Number of its test images.
        load: Returns the images, from a folder or, if that is `None`, from where it finds them; it
            calls its second argument with a line that names their source.
        is_embedded: Whether it comes with kdist. Then it has no folder, and is loaded at once.
        note: What the help text adds about its name, if that does not say enough.
        files_note: What the help says of its files in `data_dir`.
    """

    title: str
    training_images: int
    test_images: int
    load: Callable[[Folder | None, Announce], "ImageData"]
    is_embedded: bool = False
    note: str = ""
    files_note: str = ""


def _fashion_mnist(data_dir: Folder | None, announce: Announce) -> "ImageData":
    from .fashion_mnist_files import fashion_mnist

    return fashion_mnist(data_dir=data_dir, announce=announce)


def _cifar10(data_dir: Folder | None, announce: Announce) -> "ImageData":
    from .cifar10_files import cifar10

    return cifar10(data_dir=data_dir, announce=announce)


def _sample(_: Folder | None, announce: Announce) -> "ImageData":
    from .fashion_mnist_files import fashion_mnist

    return fashion_mnist(sample=True, announce=announce)


DATASETS: Mapping[str, Dataset] = {
    "fashion_mnist": Dataset(
        title="Fashion-MNIST",
        training_images=60_000,
        test_images=10_000,
        load=_fashion_mnist,
        note="falls back to the embedded sample if unavailable",
        files_note="has four files",
    ),
    "cifar10": Dataset(
        title="CIFAR-10",
        training_images=50_000,
        test_images=10_000,
        load=_cifar10,
        files_note="has six, or an archive of them",
    ),
    "sample": Dataset(
        title="Fashion-MNIST",
        training_images=10_000,
        test_images=2_000,
        load=_sample,
        is_embedded=True,
    ),
}
MOST_IMAGES = max(one.training_images for one in DATASETS.values())
"""Of all data sets; a larger batch would be cut to them."""

if TYPE_CHECKING:
    DatasetName = str
else:
    DatasetName = Literal[tuple(DATASETS)]


def check_data_dir(dataset: str, data_dir: Folder | None) -> None:
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


def needs_no_download(dataset: str, data_dir: Folder | None) -> bool:
    """Whether the data set is on this machine for certain, or an error of the user."""
    return data_dir is not None or DATASETS[dataset].is_embedded
