"""`Preprocessing`: how the images of a run are augmented, cropped and standardized."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ..data import ImageData
from .config import TrainConfig

# Of height and width: 24 of CIFAR-10's 32 pixels.
_TOWERS_CROP = 3 / 4
_CROP_PADDING = 4
# Of height and width, as Jordan 2024 has it: 12 of CIFAR-10's 32 pixels.
_CUTOUT = 3 / 8
_COLORED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How the images of a run are prepared, for training and for evaluation.

    Attributes:
        image_shape: Height, width and channels of what the network sees.
        augment: As `training_batches` takes it.
        standardization: As `training_batches` and `evaluation_batches` take it.
    """

    image_shape: tuple[int, int, int]
    augment: Any
    standardization: Callable[[Any], Any]

    def evaluated(self, images: Any) -> Any:
        """Return images as they are evaluated, not yet standardized: their middle, if cropped."""
        from ..data import center_crop

        height, width, _ = self.image_shape
        return (
            images if images.shape[1:3] == (height, width) else center_crop(images, (height, width))
        )


def seen_shape(config: TrainConfig, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the shape of what the network sees of images of a shape.

    Example:
        >>> seen_shape(TrainConfig(augmentation="towers"), (32, 32, 3))
        (24, 24, 3)
    """
    height, width, channels = image_shape
    if config.augmentation == "towers":
        height, width = (max(1, round(side * _TOWERS_CROP)) for side in (height, width))
    return height, width, channels


def preprocessing(config: TrainConfig, data: ImageData) -> Preprocessing:
    """Return how a run prepares its images.

    Args:
        config: The settings.
        data: The images; mean and deviation are those of the training images.
    """
    shape = seen_shape(config, data.image_shape)
    return Preprocessing(
        image_shape=shape,
        augment=_augment(config, shape, data),
        standardization=_standardization(config, data),
    )


def _augment(config: TrainConfig, shape: tuple[int, int, int], images: ImageData) -> Any:
    from .. import data

    size, flip = shape[:2], data.RandomHorizontalFlip()
    crop = data.RandomCrop(size, padding=_CROP_PADDING, padding_mode="reflect")
    match config.augmentation:
        case "crop":
            return [crop, flip]
        case "cutout":
            square = [max(1, round(side * _CUTOUT)) for side in size]
            mean = data.Standardization.of(images.train_images).mean
            return [crop, flip, data.RandomCutout(square, fill=mean)]
        case "towers":
            # Without the tutorial's brightness, which the standardization takes out again.
            return [data.RandomCrop(size), flip, data.RandomContrast(0.2, 1.8)]
        case "course":
            affine = data.RandomAffine(degrees=10, scale=(0.8, 1.2), shear=10)
            if shape[2] != _COLORED:
                return [flip, affine, data.RandomContrast(0.8, 1.2)]
            amounts = dict.fromkeys(("brightness", "contrast", "saturation", "hue"), 0.2)
            return [flip, affine, data.ColorJitter(**amounts)]
    return config.augment


def _standardization(config: TrainConfig, data: ImageData) -> Callable[[Any], Any]:
    if config.augmentation == "towers":
        import tensorflow as tf

        each: Callable[[Any], Any] = tf.image.per_image_standardization
        return each
    from ..data import Standardization

    return Standardization.of(data.train_images)
