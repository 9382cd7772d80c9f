"""The augmentations of `kdist train --augmentation`. A new augmentation needs an entry here.

The names of the setting and its help text follow from the entries; `transforms.py` has the
transforms.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .image_data import ImageData

_CROP_PADDING = 4  # pixels on each side, for `crop` and `cutout`
# Fraction of height and width, as in Jordan 2024 (arXiv:2404.00498): 12 of CIFAR-10's 32 pixels.
_CUTOUT_FRACTION = 3 / 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """An augmentation that can be chosen by its name.

    Attributes:
        note: Effect on the training images in addition to flips, for the help text.
        make: Returns the `augment` argument of `training_batches` for the images of a data set.
    """

    note: str
    make: Callable[["ImageData"], bool | list[Any]]


# TensorFlow is imported inside the functions: the settings of `kdist train` need only the names.


def _make_crop(images: "ImageData") -> list[Any]:
    from .transforms import RandomCrop, RandomHorizontalFlip

    return [RandomCrop(images.image_shape[:2], padding=_CROP_PADDING), RandomHorizontalFlip()]


def _make_cutout(images: "ImageData") -> list[Any]:
    from .image_data import Standardization
    from .transforms import RandomCutout

    square = [max(1, round(side * _CUTOUT_FRACTION)) for side in images.image_shape[:2]]
    mean = Standardization.of(images.train_images).mean
    return [*_make_crop(images), RandomCutout(square, fill=mean)]


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "shift": Augmentation(
        note="shifts them by a fraction of their size",
        make=lambda images: True,  # noqa: ARG005 - built into `training_batches`
    ),
    "crop": Augmentation(
        note=f"pads each edge with {_CROP_PADDING} reflected pixels, and crops at random",
        make=_make_crop,
    ),
    "cutout": Augmentation(
        note="crops likewise, and covers a square of 3/8 of height and width with the mean color",
        make=_make_cutout,
    ),
}

if TYPE_CHECKING:
    AugmentationName = str
else:
    AugmentationName = Literal[tuple(AUGMENTATIONS)]
