"""`RandomCutout`: cover a square of each image at random."""

import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from ..arguments import as_real
from ..errors import UserError
from .per_image import as_images, as_tuple, check_fits, check_size, draw, whole


class RandomCutout:
    """Covers a window of each image at a random place, for `training_batches(augment=…)`.

    The window lies wholly within the image. All places have the same probability, and are
    independent for every image.

    Args:
        size: Height and width of the windows in pixels, or one number for both.
        fill: Value of the pixels in the window, one for each channel or one for all. The mean of
            the training images is 0 after standardization.

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: An argument is out of range, or the images are smaller than the windows or have
            other channels than `fill`.

    Example:
        >>> RandomCutout(12, fill=128)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])

    Source: DeVries & Taylor 2017, "Improved Regularization of Convolutional Neural Networks with
        Cutout" (arXiv:1708.04552), whose windows may reach beyond the edge.
    """

    def __init__(self, size: int | Sequence[int], *, fill: npt.ArrayLike = 0.0) -> None:
        self.size = check_size(size)
        values = [as_real(value) for value in as_tuple(fill, 1)]
        if not values or any(value is None or not math.isfinite(value) for value in values):
            raise UserError(
                f"fill={fill!r}; expected a finite number, or one for each channel of the images."
            )
        self.fill = values

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, a window of each covered; see the class."""
        images = as_images(images)
        check_fits(images, self.size)
        if images.shape[3] is not None and len(self.fill) not in (1, images.shape[3]):
            raise UserError(
                f"fill has {len(self.fill)} values, but images of shape {images.shape} have "
                f"{images.shape[3]} channels: pass one for each, or one for all."
            )
        sides = tf.unstack(tf.shape(images)[1:3])
        covered = [
            _covered(side, size, place)
            for side, size, place in zip(sides, self.size, draw(2, images, seed), strict=True)
        ]
        window = covered[0][:, :, tf.newaxis] & covered[1][:, tf.newaxis, :]
        return tf.where(window[..., tf.newaxis], tf.constant(self.fill, tf.float32), images)


def _covered(side: Any, size: int, place: Any) -> Any:
    """Whether each position along a side is in the window of each image: (images, side)."""
    free = tf.cast(side - size, tf.float32)
    first = whole(place, free)[:, tf.newaxis]
    positions = tf.range(tf.cast(side, tf.float32))
    return (positions >= first) & (positions < first + size)
