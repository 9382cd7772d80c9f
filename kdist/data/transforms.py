"""Random crops, flips and cutouts of training images, for `training_batches(augment=[…])`.

Each transform is called with float32 images of shape (images, height, width, channels) and a `seed`
of two integers. Every image gets its own random numbers, all derived from `seed`. Equal seeds give
equal results for the same number of images.
"""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from ..errors import UserError
from .image_data import ImageData, Standardization

_CROP_PADDING = 4  # pixels on each side, for `crop` and `cutout`
# Fraction of height and width, as in Jordan 2024 (arXiv:2404.00498): 12 of CIFAR-10's 32 pixels.
_CUTOUT_FRACTION = 3 / 8


def make_augmentation(name: str, images: ImageData) -> bool | list[Any]:
    """Return the `augment` argument of `training_batches` for `kdist train --augmentation`.

    Args:
        name: `"shift"`, `"crop"` or `"cutout"`.
        images: The data set.
    """
    if name == "shift":
        return True  # built into `training_batches`
    height, width, _ = images.image_shape
    transforms: list[Any] = [
        RandomCrop((height, width), padding=_CROP_PADDING),
        RandomHorizontalFlip(),
    ]
    if name == "cutout":
        square = [max(1, round(side * _CUTOUT_FRACTION)) for side in (height, width)]
        mean = Standardization.of(images.train_images).mean
        transforms.append(RandomCutout(square, fill=mean))
    return transforms


class RandomCrop:
    """Cuts a window out of each image; all positions have the same probability.

    Args:
        size: Height and width of the windows in pixels, or a number for both.
        padding: Number of pixels to add on each side before the crop; they mirror the image at its
            edge. `RandomCrop(32, padding=4)` shifts images of 32x32 pixels by at most 4 pixels.

    Raises:
        UserError: The images are smaller than the windows.

    Examples:
        >>> RandomCrop(24)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 24, 24, 3])
    """

    def __init__(self, size: int | Sequence[int], *, padding: int = 0) -> None:
        self.size, self.padding = _parse_size(size), padding

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return a float32 window of each image, (images, *size, channels)."""
        images = tf.convert_to_tensor(images, tf.float32)
        if self.padding:
            # `tf.pad` cannot reflect an empty batch.
            sides = [(self.padding, self.padding)]
            for axis in (1, 2):
                places = tf.pad(tf.range(tf.shape(images)[axis]), sides, "reflect")
                images = tf.gather(images, places, axis=axis)
        corners = tf.stack(_draw_corners(images, self.size, seed), axis=1)
        # Faster than gathering rows and columns, or pixels.
        windows = tf.image.extract_glimpse(
            images, self.size, corners, centered=False, normalized=False, noise="zero"
        )
        return tf.ensure_shape(windows, (images.shape[0], *self.size, images.shape[3]))


class RandomHorizontalFlip:
    """Mirrors each image with probability 1/2.

    Examples:
        >>> RandomHorizontalFlip()(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, some of them mirrored."""
        images = tf.convert_to_tensor(images, tf.float32)
        (draws,) = _draw_numbers(1, images, seed)
        # Reverse all columns of an image, or only its first column, which changes nothing. This is
        # several times as fast as `tf.image.stateless_random_flip_left_right`, which reverses all
        # images and then selects.
        columns = tf.where(draws < 0.5, tf.shape(images)[2], 1)
        return tf.reverse_sequence(images, columns, seq_axis=2, batch_axis=0)


class RandomCutout:
    """Covers a window of each image; all positions inside the image have the same probability.

    Args:
        size: Height and width of the windows in pixels, or a number for both.
        fill: Value of the pixels in the window: a value per channel, or a value for all channels.
            The mean of the training images is 0 after standardization.

    Raises:
        UserError: The images are smaller than the windows.

    Examples:
        >>> RandomCutout(12, fill=128)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])

    Source: DeVries & Taylor 2017, "Improved Regularization of Convolutional Neural Networks with
    Cutout" (arXiv:1708.04552). In the paper, windows may reach beyond the edge.
    """

    def __init__(self, size: int | Sequence[int], *, fill: npt.ArrayLike = 0.0) -> None:
        self.size, self.fill = _parse_size(size), fill

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images with a covered window in each image."""
        images = tf.convert_to_tensor(images, tf.float32)
        tops, lefts = _draw_corners(images, self.size, seed)
        rows = _is_within(tf.shape(images)[1], tops, self.size[0])
        columns = _is_within(tf.shape(images)[2], lefts, self.size[1])
        window = rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
        return tf.where(window[..., tf.newaxis], tf.constant(self.fill, tf.float32), images)


def _is_within(side: Any, firsts: Any, size: int) -> Any:
    """Return, for each image and each position along a side, whether the window covers it."""
    positions, firsts = tf.range(tf.cast(side, tf.float32)), firsts[:, tf.newaxis]
    return (positions >= firsts) & (positions < firsts + size)


def _draw_corners(images: Any, size: tuple[int, int], seed: Any) -> list[Any]:
    """Draw each image's window: its first row and column, as float32 with integer values."""
    _check_fits(images, size)
    largest = tf.unstack(tf.cast(tf.shape(images)[1:3] - size, tf.float32))
    # Rounding may raise the product to the number of positions.
    return [
        tf.minimum(tf.floor(draws * (last + 1)), last)
        for draws, last in zip(_draw_numbers(2, images, seed), largest, strict=True)
    ]


def _draw_numbers(numbers: int, images: Any, seed: Any) -> list[Any]:
    """Draw numbers from 0 to 1 for each image: `numbers` tensors of shape (images,)."""
    # tf.data runs on the CPU, where "auto_select" is Philox; naming Philox adds 42 operations.
    draws = tf.random.stateless_uniform((numbers, tf.shape(images)[0]), seed, alg="auto_select")
    return list(tf.unstack(draws, num=numbers))


def _parse_size(size: int | Sequence[int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def _check_fits(images: Any, size: tuple[int, int]) -> None:
    """Reject a window that is larger than the images, where their size is known."""
    sides = images.shape[1:3]
    if any(side is not None and side < least for side, least in zip(sides, size, strict=True)):
        raise UserError(
            f"the window {size[0]}x{size[1]} is larger than the images"
            f" ({sides[0]}x{sides[1]} pixels): pass a smaller size"
        )
