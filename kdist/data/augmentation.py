"""The augmentations of `kdist train --augmentation`. A new augmentation needs an entry here.

The names of the setting and its help text follow from the entries; `transforms.py` has the
transforms.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .image_data import ImageData

Shape = tuple[int, int, int]

_CROP_PADDING = 4  # pixels on each side, for `crop` and `cutout`
# Fraction of height and width, as in Jordan 2024 (arXiv:2404.00498): 12 of CIFAR-10's 32 pixels.
_CUTOUT = 3 / 8
# Fraction of height and width: 24 of CIFAR-10's 32 pixels.
_TOWERS_CROP = 3 / 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """An augmentation that can be chosen by its name.

    Attributes:
        note: Effect on the training images, besides flips, for the help text.
        make: Returns the transforms for the network's input shape and a data set. `None` for the
            flips and shifts that are built into `training_batches`.
        crop: Fraction of height and width in the network's input; evaluation takes the center.
        standardizes_each: Whether each image is standardized by its own mean and deviation, instead
            of the data set's mean and deviation.
    """

    note: str
    make: Callable[[Shape, "ImageData"], list[Any]] | None
    crop: float = 1.0
    standardizes_each: bool = False

    def seen_shape(self, shape: Shape) -> Shape:
        """Return the shape of the network's input.

        Example:
            >>> AUGMENTATIONS["towers"].seen_shape((32, 32, 3))
            (24, 24, 3)
        """
        height, width, channels = shape
        return max(1, round(height * self.crop)), max(1, round(width * self.crop)), channels

    def transforms(self, images: "ImageData") -> Any:
        """Return the `augment` argument of `training_batches` for the images of a data set."""
        return self.make is None or self.make(self.seen_shape(images.image_shape), images)

    def standardization(self, images: "ImageData") -> Callable[[Any], Any]:
        """Return the `standardization` argument of `training_batches` for a data set."""
        if self.standardizes_each:
            import tensorflow as tf

            each: Callable[[Any], Any] = tf.image.per_image_standardization
            return each
        from .image_data import Standardization

        return Standardization.of(images.train_images)


# TensorFlow is imported inside the functions: the settings of `kdist train` need only the names.


def _crop(shape: Shape, images: "ImageData") -> list[Any]:  # noqa: ARG001 - the same arguments for all
    from .transforms import RandomCrop, RandomHorizontalFlip

    crop = RandomCrop(shape[:2], padding=_CROP_PADDING, padding_mode="reflect")
    return [crop, RandomHorizontalFlip()]


def _cutout(shape: Shape, images: "ImageData") -> list[Any]:
    from .image_data import Standardization
    from .transforms import RandomCutout

    square = [max(1, round(side * _CUTOUT)) for side in shape[:2]]
    mean = Standardization.of(images.train_images).mean
    return [*_crop(shape, images), RandomCutout(square, fill=mean)]


def _towers(shape: Shape, images: "ImageData") -> list[Any]:  # noqa: ARG001
    from .transforms import RandomCrop, RandomHorizontalFlip

    return [RandomCrop(shape[:2]), RandomHorizontalFlip()]


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "shift": Augmentation(note="shifts them by a fraction of their size", make=None),
    "crop": Augmentation(
        note=f"crops them at random, after {_CROP_PADDING} pixels are reflected beyond each edge",
        make=_crop,
    ),
    "cutout": Augmentation(
        note="also covers a square of 3/8 of height and width with the mean color",
        make=_cutout,
    ),
    "towers": Augmentation(
        note="crops them to 3/4 of height and width and standardizes each image, as in TensorFlow's"
        " CIFAR-10 tutorial",
        make=_towers,
        crop=_TOWERS_CROP,
        standardizes_each=True,
    ),
}

if TYPE_CHECKING:
    AugmentationName = str
else:
    AugmentationName = Literal[tuple(AUGMENTATIONS)]
