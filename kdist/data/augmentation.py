"""Random variants of training images, a batch at a time."""

from typing import Any

import tensorflow as tf
from kdist.errors import UserError


def random_flip_and_shift(images: Any, *, seed: Any, shift: float = 0.2) -> Any:
    """Shift each image by a random way and mirror half of them left to right.

    The shifts are uniform, fractional (bilinear between pixels), and independent in height, in
    width and from image to image. Pixels from beyond the edge repeat the nearest one.

    Args:
        images: float32, (images, height, width, channels); zero images are allowed.
        seed: Two integers. The same seed gives the same variants of as many images.
        shift: Longest shift, as a part of height and of width, from 0 to 1.

    Returns:
        float32, the shape of `images`.

    Raises:
        UserError: When `shift` or the type or shape of `images` is another one.

    Example:
        >>> variants = random_flip_and_shift(images, seed=(2026, 1))

    Source:
        `ImageDataGenerator(width_shift_range=0.2, height_shift_range=0.2,
        horizontal_flip=True, fill_mode="nearest")` of Keras 2, which takes one image at a time.
    """
    if not 0 <= shift <= 1:
        raise UserError(f"shift={shift!r}; expected a part of height and width, from 0 to 1.")
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.float32 or images.shape.rank not in (4, None):
        raise UserError(
            f"Images are {images.dtype.name} of shape {images.shape}; expected float32 of shape "
            "(images, height, width, channels). Standardize them first."
        )
    count, height, width, _ = tf.unstack(tf.shape(images), num=4)
    # The algorithm is named because TensorFlow's choice differs between kinds of device.
    down, right, side = tf.unstack(
        tf.random.stateless_uniform((3, count), seed, minval=-1.0, maxval=1.0, alg="philox")
    )
    rows = _positions(height, shift * down)
    columns = _positions(width, shift * right)
    columns = tf.where(side[:, tf.newaxis] < 0, columns[:, ::-1], columns)
    # Rows are contiguous, so gathering them twice around a transposition beats gathering columns,
    # and on small images a batched matrix product and ImageProjectiveTransformV3.
    turned = tf.transpose(_interpolated(images, rows), (0, 2, 1, 3))
    result = tf.transpose(_interpolated(turned, columns), (0, 2, 1, 3))
    return tf.ensure_shape(result, images.shape)


def _positions(size: Any, shift: Any) -> Any:
    """Where each of `size` pixels comes from in each image: (images, size)."""
    size = tf.cast(size, tf.float32)
    return tf.clip_by_value(tf.range(size) + size * shift[:, tf.newaxis], 0.0, size - 1.0)


def _interpolated(images: Any, positions: Any) -> Any:
    """Rows of each image at fractional positions."""
    above = tf.floor(positions)
    weight = (positions - above)[:, :, tf.newaxis, tf.newaxis]
    first = tf.cast(above, tf.int32)
    second = tf.minimum(first + 1, tf.shape(images)[1] - 1)
    upper = tf.gather(images, first, axis=1, batch_dims=1)
    lower = tf.gather(images, second, axis=1, batch_dims=1)
    return upper + weight * (lower - upper)
