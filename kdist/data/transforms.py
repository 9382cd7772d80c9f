"""Random crops, flips and cutouts of training images, for `training_batches(augment=[…])`.

Each transform is called with float32 images of shape (images, height, width, channels) and a `seed`
of two integers. Every image gets its own random numbers, all derived from `seed`. Equal seeds give
equal results for the same number of images.
"""

import math
import typing
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..arguments import as_integer, as_real
from ..errors import UserError

PaddingMode = Literal["constant", "reflect"]
PADDING_MODES: tuple[str, ...] = typing.get_args(PaddingMode)


class RandomCrop:
    """Cuts a window out of each image; all positions have the same probability.

    Args:
        size: Height and width of the windows in pixels, or a number for both.
        padding: Pixels that are first added on each side of the images. `RandomCrop(32, padding=4)`
            shifts images of 32x32 pixels by at most 4.
        padding_mode: Added pixels are black ("constant") or mirror the image ("reflect").

    Raises:
        UserError: An argument is out of range, or the images are smaller than the windows.

    Example:
        >>> RandomCrop(24)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 24, 24, 3])
    """

    def __init__(
        self,
        size: int | Sequence[int],
        *,
        padding: int = 0,
        padding_mode: PaddingMode = "constant",
    ) -> None:
        self.size = _check_size(size)
        pixels = as_integer(padding)
        if pixels is None or pixels < 0:
            raise UserError(f"padding={padding!r}; expected an integer of at least 0, in pixels.")
        if padding_mode not in PADDING_MODES:
            raise UserError(
                f"padding_mode={padding_mode!r}; expected one of {', '.join(PADDING_MODES)}."
            )
        self.padding, self.padding_mode = pixels, padding_mode

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return a float32 window of each image, (images, *size, channels)."""
        images = _as_images(images)
        _check_fits(images, self.size, self.padding)
        shape = (images.shape[0], *self.size, images.shape[3])
        if self.padding:
            images = self._pad(images)
        corners = tf.stack(_draw_corners(images, self.size, seed), axis=1)
        # Faster than gathering rows and columns, or pixels.
        windows = tf.image.extract_glimpse(
            images, self.size, corners, centered=False, normalized=False, noise="zero"
        )
        return tf.ensure_shape(windows, shape)

    def _pad(self, images: Any) -> Any:
        sides = (self.padding, self.padding)
        if self.padding_mode == "constant":
            return tf.pad(images, ((0, 0), sides, sides, (0, 0)))
        smallest = min((side for side in images.shape[1:3] if side is not None), default=math.inf)
        if self.padding >= smallest:
            raise UserError(
                f"padding={self.padding} of images of {images.shape[1]}x{images.shape[2]} pixels "
                "has no pixels to reflect: choose a smaller one."
            )
        # `tf.pad` cannot reflect an empty batch.
        for axis in (1, 2):
            places = tf.pad(tf.range(tf.shape(images)[axis]), (sides,), "reflect")
            images = tf.gather(images, places, axis=axis)
        return images


def center_crop(images: Any, size: int | Sequence[int]) -> Any:
    """Cut the center out of images, to evaluate models trained with `RandomCrop`.

    Args:
        images: (images, height, width, channels): a NumPy array or a tensor.
        size: Height and width in pixels, or a number for both.

    Returns:
        Images of the same array type and dtype, (images, *size, channels). If an odd number of
        pixels is cut off, bottom and right lose the additional pixel.

    Raises:
        UserError: `size` is out of range, or the images are smaller or have a different shape.

    Example:
        >>> center_crop(data.test_images, 24).shape
        (10000, 24, 24, 3)
    """
    height, width = _check_size(size)
    shape = getattr(images, "shape", ())
    if len(shape) != 4:
        raise UserError(
            f"Images are {type(images).__name__} of shape {tuple(shape)}; expected an array or a "
            "tensor of shape (images, height, width, channels)."
        )
    _check_fits(images, (height, width))
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    return images[:, top : top + height, left : left + width]


class RandomHorizontalFlip:
    """Mirrors each image with probability 1/2.

    Raises:
        UserError: The images have a different dtype or shape.

    Example:
        >>> RandomHorizontalFlip()(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, some of them mirrored."""
        images = _as_images(images)
        (draws,) = _draw_numbers(1, images, seed)
        # The reversal of a single column changes nothing.
        # `tf.image.stateless_random_flip_left_right` reverses all images and selects, and takes
        # several times as long.
        columns = tf.where(draws < 0.5, tf.shape(images)[2], 1)
        return tf.reverse_sequence(images, columns, seq_axis=2, batch_axis=0)


class RandomCutout:
    """Covers a window of each image; all positions inside the image have the same probability.

    Args:
        size: Height and width of the windows in pixels, or a number for both.
        fill: Value of the pixels in the window: a value per channel, or a value for all channels.
            The mean of the training images is 0 after standardization.

    Raises:
        UserError: An argument is out of range, the images are smaller than the windows, or the
            number of channels does not fit `fill`.

    Example:
        >>> RandomCutout(12, fill=128)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])

    Source: DeVries & Taylor 2017, "Improved Regularization of Convolutional Neural Networks with
    Cutout" (arXiv:1708.04552). In the paper, windows may reach beyond the edge.
    """

    def __init__(self, size: int | Sequence[int], *, fill: npt.ArrayLike = 0.0) -> None:
        self.size = _check_size(size)
        values = [as_real(value) for value in _as_tuple(fill, 1)]
        if not values or any(value is None or not math.isfinite(value) for value in values):
            raise UserError(
                f"fill={fill!r}; expected a finite number, or one for each channel of the images."
            )
        self.fill = values

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images with a covered window in each image."""
        images = _as_images(images)
        _check_fits(images, self.size)
        if images.shape[3] is not None and len(self.fill) not in (1, images.shape[3]):
            raise UserError(
                f"fill has {len(self.fill)} values, but images of shape {images.shape} have "
                f"{images.shape[3]} channels: pass one for each, or one for all."
            )
        tops, lefts = _draw_corners(images, self.size, seed)
        rows = _are_within(tf.shape(images)[1], tops, self.size[0])
        columns = _are_within(tf.shape(images)[2], lefts, self.size[1])
        window = rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
        return tf.where(window[..., tf.newaxis], tf.constant(self.fill, tf.float32), images)


def _are_within(side: Any, firsts: Any, size: int) -> Any:
    """Return whether each position along a side is in the window of each image: (images, side)."""
    positions, firsts = tf.range(tf.cast(side, tf.float32)), firsts[:, tf.newaxis]
    return (positions >= firsts) & (positions < firsts + size)


def _draw_corners(images: Any, size: tuple[int, int], seed: Any) -> list[Any]:
    """Draw the first row and column of a window for each image, as whole float32 numbers."""
    largest = tf.unstack(tf.cast(tf.shape(images)[1:3] - size, tf.float32))
    # Rounding may raise the product to the number of positions.
    return [
        tf.minimum(tf.floor(draws * (last + 1)), last)
        for draws, last in zip(_draw_numbers(2, images, seed), largest, strict=True)
    ]


def _draw_numbers(numbers: int, images: Any, seed: Any) -> list[Any]:
    """Draw numbers from 0 to 1 for each image: `numbers` tensors of shape (images,)."""
    # tf.data runs on the CPU, where this selects Philox; naming it would add 42 operations.
    draws = tf.random.stateless_uniform((numbers, tf.shape(images)[0]), seed, alg="auto_select")
    return list(tf.unstack(draws, num=numbers))


def _as_images(images: Any) -> Any:
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.float32 or images.shape.rank not in (4, None):
        raise UserError(
            f"Images are {images.dtype.name} of shape {images.shape}; expected float32 of shape "
            "(images, height, width, channels): convert them by tf.cast(images, tf.float32)."
        )
    return images


def _as_tuple(values: Any, count: int) -> tuple[Any, ...]:
    """Return the items of a list, tuple or array; repeat a single value `count` times."""
    several = isinstance(values, tuple | list) or (isinstance(values, np.ndarray) and values.ndim)
    return tuple(values) if several else (values,) * count


def _check_size(size: Any) -> tuple[int, int]:
    sides = [as_integer(side) for side in _as_tuple(size, 2)]
    if len(sides) != 2 or any(side is None or side < 1 for side in sides):
        raise UserError(
            f"size={size!r}; expected height and width in pixels, or one integer for both, each at "
            "least 1."
        )
    height, width = sides
    return height, width  # type: ignore[return-value]


def _check_fits(images: Any, size: tuple[int, int], padding: int = 0) -> None:
    """Check that no padded side of the images is smaller than the window; skip unknown sides."""
    sides = images.shape[1:3]
    if any(
        side is not None and side + 2 * padding < least
        for side, least in zip(sides, size, strict=True)
    ):
        padded = f" and padding={padding}" if padding else ""
        raise UserError(
            f"A window of {size[0]}x{size[1]} pixels was asked for of images of "
            f"{sides[0]}x{sides[1]} pixels{padded}: choose a smaller size."
        )
