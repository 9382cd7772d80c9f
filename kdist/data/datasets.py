"""The data sets of `kdist train --dataset`. To add one, add its entry here.

Its name as a setting, the help and the largest batch follow from the entry.
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
        training_images: Number of training images in the full set; no batch has more.
        load: Returns the images, from a folder or, if that is `None`, from where it finds them; it
            calls its second argument with a line that names their source.
        is_embedded: Whether it comes with kdist. Then it has no folder, and is loaded at once.
        note: What the help text adds about its name, if that does not say enough.
        files_note: What the help says of its files in `data_dir`.
    """

    training_images: int
    load: Callable[[Folder | None, Announce], "ImageData"]
    is_embedded: bool = False
    note: str = ""
    files_note: str = ""


def _files() -> Any:
    # NumPy is imported now: the command line asks for the names alone.
    from . import image_files

    return image_files


DATASETS: Mapping[str, Dataset] = {
    "fashion_mnist": Dataset(
        training_images=60_000,
        load=lambda folder, announce: _files().fashion_mnist(data_dir=folder, announce=announce),
        note="falls back to the embedded sample if unavailable, except in sweeps and searches",
        files_note="has four files",
    ),
    "cifar10": Dataset(
        training_images=50_000,
        load=lambda folder, announce: _files().cifar10(data_dir=folder, announce=announce),
        files_note="has six",
    ),
    "sample": Dataset(
        training_images=10_000,
        load=lambda _, announce: _files().fashion_mnist(sample=True, announce=announce),
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
