"""The data sets of `kdist train --dataset`. A new data set needs an entry here.

The names of the setting and the largest batch follow from the entries; its help text is in
`kdist/training/settings.py`.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError

if TYPE_CHECKING:
    from .image_data import ImageData

Announce = Callable[[str], object]
Folder = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set that can be chosen by its name.

    Attributes:
        training_images: Number of training images in the full set, and the largest batch.
        load: Returns the images from a folder; `None` stands for the default sources. The second
            argument is called with a line that names the source.
        is_embedded: Whether the data set is part of kdist, so that no folder is read.
    """

    training_images: int
    load: Callable[[Folder | None, Announce], "ImageData"]
    is_embedded: bool = False


def _import_image_files() -> Any:
    # NumPy is imported inside the function: the command line needs only the names.
    from . import image_files

    return image_files


DATASETS: Mapping[str, Dataset] = {
    "fashion_mnist": Dataset(
        training_images=60_000,
        load=lambda folder, announce: _import_image_files().fashion_mnist(
            data_dir=folder, announce=announce
        ),
    ),
    "cifar10": Dataset(
        training_images=50_000,
        load=lambda folder, announce: _import_image_files().cifar10(
            data_dir=folder, announce=announce
        ),
    ),
    "sample": Dataset(
        training_images=10_000,
        load=lambda _, announce: _import_image_files().fashion_mnist(
            sample=True, announce=announce
        ),
        is_embedded=True,
    ),
}
MOST_IMAGES = max(dataset.training_images for dataset in DATASETS.values())
"""Largest number of training images of all data sets; a larger batch would never be full."""

if TYPE_CHECKING:
    DatasetName = str
else:
    DatasetName = Literal[tuple(DATASETS)]


def check_data_dir(dataset: str, data_dir: Folder | None) -> None:
    """Reject a `data_dir` for a data set that comes with kdist.

    Raises:
        UserError: The data set is embedded, and a folder is given.
    """
    if data_dir is not None and DATASETS[dataset].is_embedded:
        with_folder = [
            name for name, dataset_entry in DATASETS.items() if not dataset_entry.is_embedded
        ]
        raise UserError(
            f"received data_dir={os.fspath(data_dir)} with dataset={dataset}, which comes with"
            " kdist and reads no folder: remove data_dir, or choose"
            f" dataset={' or '.join(with_folder)}"
        )
