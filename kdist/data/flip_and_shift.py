"""Random flips and shifts of training images, one batch at a time."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UserError


def random_flip_and_shift(
    images: Any, *, seed: Any, shift: float = 0.2, whole_pixels: bool = False
) -> Any:
    """Flip each image horizontally with probability 1/2, and shift it by a random distance.

    Shifts are uniform, and independent for height, width and every image. They are fractional, with
    bilinear interpolation (which blurs), or by whole pixels. Pixels beyond the edge repeat the
    nearest pixel inside.

    Args:
        images: float32, (images, height, width, channels); zero images are allowed.
        seed: Two integers. The same seed gives the same result for the same number of images.
        shift: Largest shift, as a fraction of height and width, from 0 to 1.
        whole_pixels: Shift by whole pixels, up to the largest shift rounded to an integer, each
            shift with the same probability. This is also known as padding and random cropping.

    Returns:
        float32, the shape of `images`.

    Raises:
        UserError: If `shift`, or the type or shape of `images`, is invalid.

    Example:
        >>> variants = random_flip_and_shift(images, seed=(2026, 1))

    Source:
        `ImageDataGenerator(width_shift_range=0.2, height_shift_range=0.2,
        horizontal_flip=True, fill_mode="nearest")` of Keras 2, which takes one image at a time.
    """
    _check_shift(shift)
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.float32 or images.shape.rank not in (4, None):
        raise UserError(
            f"Images are {images.dtype.name} of shape {images.shape}; expected float32 of shape "
            "(images, height, width, channels). Standardize them first."
        )
    count, height, width, _ = tf.unstack(tf.shape(images), num=4)
    # The algorithm is named because TensorFlow's choice differs between kinds of device.
    down, right, mirrored = _draws(count, seed, "philox")
    rows = _positions(height, _way(down, shift * tf.cast(height, tf.float32), whole_pixels))
    columns = _positions(width, _way(right, shift * tf.cast(width, tf.float32), whole_pixels))
    columns = tf.where(mirrored[:, tf.newaxis], tf.cast(width - 1, tf.float32) - columns, columns)
    # Rows are contiguous, so gathering them twice around a transposition beats gathering columns.
    turned = tf.transpose(_interpolated(images, rows), (0, 2, 1, 3))
    result = tf.transpose(_interpolated(turned, columns), (0, 2, 1, 3))
    return tf.ensure_shape(result, images.shape)


class RandomVariants:
    """Random flips and shifts of images in memory: a faster `random_flip_and_shift` for `tf.data`.

    Inside a model or training step, where XLA may compile it or gradients pass through it, use
    `random_flip_and_shift` instead.

    Args:
        images: (images, height, width, channels), of any real type. They are stored twice, as they
            are and flipped, padded for the shift: with a shift of 0.2, 192 MB for Fashion-MNIST's
            60,000 images and 635 MB for CIFAR-10's 50,000.
        shift: As in `random_flip_and_shift`.
        whole_pixels: As in `random_flip_and_shift`.

    Raises:
        UserError: If `shift` or the shape of `images` is invalid.

    Example:
        >>> variants = RandomVariants(data.train_images)
        >>> batch = variants([17, 4], seed=(2026, 1))
    """

    def __init__(self, images: Any, *, shift: float = 0.2, whole_pixels: bool = False) -> None:
        _check_shift(shift)
        images = tf.convert_to_tensor(images)
        if images.shape.rank != 4 or not images.shape.is_fully_defined():
            raise UserError(
                f"Images are of shape {images.shape}; expected (images, height, width, channels), "
                "all of them known."
            )
        count, height, width, _ = images.shape
        self._count, self._size = count, np.array([height, width], np.int32)
        self._longest = np.float32(shift) * self._size.astype(np.float32)
        self._whole_pixels = whole_pixels
        self._margin = np.ceil(self._longest).astype(np.int32)
        for axis in (1, 2):
            size, margin = self._size[axis - 1], self._margin[axis - 1]
            places = np.clip(np.arange(-margin, size + margin), 0, size - 1)
            images = tf.gather(images, places, axis=axis)
        # Mirrored once, as TensorFlow takes longer to reverse a batch than to interpolate it.
        self._images = tf.concat([images, tf.reverse(images, axis=[2])], axis=0)

    def __call__(self, indices: Any, *, seed: Any) -> Any:
        """Return randomly flipped and shifted copies of some of the images.

        Args:
            indices: Integers, (images,).
            seed: As in `random_flip_and_shift`.

        Returns:
            float32, (images, height, width, channels).
        """
        # Every operation is paid for once an epoch, when tf.data makes an iterator: hence Philox,
        # which is TensorFlow's choice on CPUs, is not named (42 operations).
        indices = tf.cast(indices, tf.int64)
        down, right, mirrored = _draws(tf.size(indices), seed, "auto_select")
        shifts = _way(tf.stack([down, right], axis=1), self._longest, self._whole_pixels)
        whole = tf.floor(shifts)
        images = tf.gather(self._images, tf.where(mirrored, indices + self._count, indices))
        # This beats gathering rows and columns, batched matrix products, `crop_and_resize` and
        # `ImageProjectiveTransformV3`.
        windows = tf.image.extract_glimpse(
            tf.cast(images, tf.float32),
            self._size if self._whole_pixels else self._size + 1,  # one more to interpolate
            whole + self._margin,
            centered=False,
            normalized=False,
            noise="zero",
        )
        if self._whole_pixels:
            return windows
        down, right = tf.unstack(tf.reshape(shifts - whole, (-1, 2, 1, 1, 1)), axis=1)
        height, width = self._size
        upper, lower = (tf.slice(windows, (0, at, 0, 0), (-1, height, -1, -1)) for at in (0, 1))
        rows = upper + down * (lower - upper)
        left, right_of_it = (tf.slice(rows, (0, 0, at, 0), (-1, -1, width, -1)) for at in (0, 1))
        return left + right * (right_of_it - left)


def _check_shift(shift: float) -> None:
    if not 0 <= shift <= 1:
        raise UserError(f"shift={shift!r}; expected a fraction of height and width, from 0 to 1.")


def _draws(count: Any, seed: Any, algorithm: str) -> tuple[Any, Any, Any]:
    """Draw for each image the shifts down and right, from -1 to 1, and whether to flip it."""
    draws = tf.random.stateless_uniform((3, count), seed, minval=-1.0, maxval=1.0, alg=algorithm)
    down, right, side = tf.unstack(draws)
    return down, right, side < 0


def _way(draws: Any, longest: Any, whole_pixels: bool) -> Any:
    """Convert draws from -1 to 1 into pixels to shift by, at most `longest`."""
    if not whole_pixels:
        return draws * longest
    longest = tf.round(longest)
    return tf.floor((draws + 1.0) * (longest + 0.5)) - longest


def _positions(size: Any, shift: Any) -> Any:
    """Return the source position of each of `size` pixels in each image: (images, size)."""
    size = tf.cast(size, tf.float32)
    return tf.clip_by_value(tf.range(size) + shift[:, tf.newaxis], 0.0, size - 1.0)


def _interpolated(images: Any, positions: Any) -> Any:
    """Interpolate the rows of each image at fractional positions."""
    above = tf.floor(positions)
    weight = (positions - above)[:, :, tf.newaxis, tf.newaxis]
    first = tf.cast(above, tf.int32)
    second = tf.minimum(first + 1, tf.shape(images)[1] - 1)
    upper = tf.gather(images, first, axis=1, batch_dims=1)
    lower = tf.gather(images, second, axis=1, batch_dims=1)
    return upper + weight * (lower - upper)
