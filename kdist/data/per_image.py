"""What the random changes of images share: draws for each image, and its numbers times pixels."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..arguments import as_integer, is_real_within
from ..errors import UserError

RED_GREEN_BLUE = 3


def as_images(images: Any) -> Any:
    """Return a batch of images as a tensor.

    Raises:
        UserError: It is not float32 of shape (images, height, width, channels).
    """
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.float32 or images.shape.rank not in (4, None):
        raise UserError(
            f"Images are {images.dtype.name} of shape {images.shape}; expected float32 of shape "
            "(images, height, width, channels): convert them by tf.cast(images, tf.float32)."
        )
    return images


def draw(numbers: int, images: Any, seed: Any) -> list[Any]:
    """Draw numbers for each image, from 0 to 1: as many tensors of shape (images,)."""
    # On CPUs, where tf.data works, this is Philox; naming it takes 42 operations.
    draws = tf.random.stateless_uniform((numbers, tf.shape(images)[0]), seed, alg="auto_select")
    return list(tf.unstack(draws, num=numbers))


def between(draws: Any, lower: float, upper: float) -> Any:
    """Convert draws from 0 to 1 into numbers from `lower` to `upper`."""
    return lower + draws * (upper - lower)


def whole(draws: Any, most: Any) -> Any:
    """Convert draws from 0 to 1 into integers from 0 to `most`, as float32, equally probable."""
    # The product may be rounded up to the number of integers.
    return tf.minimum(tf.floor(draws * (most + 1)), most)


def flat(images: Any) -> Any:
    """Return images as rows: (images, height * width * channels).

    TensorFlow multiplies a row by a number several times sooner than four dimensions.
    """
    return tf.reshape(images, (tf.shape(images)[0], tf.reduce_prod(tf.shape(images)[1:])))


def as_row_means(means: Any, images: Any) -> Any:
    """Repeat a number of each image and channel for all its pixels, as `flat` has them."""
    return tf.tile(means, (1, tf.reduce_prod(tf.shape(images)[1:3])))


def channel_means(images: Any) -> Any:
    """Mean of each channel of each image: (images, channels)."""
    count, height, width, channels = tf.unstack(tf.shape(images), num=4)
    pixels = tf.reshape(images, (count, height * width, channels))
    each = tf.fill((1, 1, height * width), 1 / tf.cast(height * width, tf.float32))
    return tf.matmul(each, pixels)[:, 0]


def like(rows: Any, images: Any) -> Any:
    """Return rows as images again, of the shape of `images`."""
    return tf.ensure_shape(tf.reshape(rows, tf.shape(images)), images.shape)


def as_tuple(values: Any, count: int) -> tuple[Any, ...]:
    """Return what a list, a tuple or an array of one axis has; a single value `count` times."""
    several = isinstance(values, tuple | list) or (isinstance(values, np.ndarray) and values.ndim)
    return tuple(values) if several else (values,) * count


def check_size(size: Any) -> tuple[int, int]:
    """Return the height and width of a crop, given both or one number for both.

    Raises:
        UserError: They are not integers of at least 1.
    """
    sides = [as_integer(side) for side in as_tuple(size, 2)]
    if len(sides) != 2 or any(side is None or side < 1 for side in sides):
        raise UserError(
            f"size={size!r}; expected height and width in pixels, or one integer for both, each at "
            "least 1."
        )
    height, width = sides
    return height, width  # type: ignore[return-value]


def check_fits(images: Any, size: tuple[int, int], padding: int = 0) -> None:
    """Check that images, padded on each side, are not smaller than a window.

    Raises:
        UserError: They are, as far as their shape is known.
    """
    sides = images.shape[1:3]
    if any(
        side is not None and side + 2 * padding < one for side, one in zip(sides, size, strict=True)
    ):
        padded = f" and padding={padding}" if padding else ""
        raise UserError(
            f"A window of {size[0]}x{size[1]} pixels was asked for of images of "
            f"{sides[0]}x{sides[1]} pixels{padded}: choose a smaller size."
        )


def check_amount(name: str, amount: Any, *, most: float | None = None) -> float:
    """Return how much something may change.

    Raises:
        UserError: It is not a number of at least 0, and at most `most`.
    """
    holds = is_real_within(amount, least=0) and (most is None or amount <= most)
    if not holds:
        bounds = "at least 0" if most is None else f"from 0 to {most:g}"
        raise UserError(f"{name}={amount!r}; expected a number {bounds}.")
    return float(amount)


def check_range(name: str, lower: Any, upper: Any) -> tuple[float, float]:
    """Return the bounds of a factor.

    Raises:
        UserError: They are not finite numbers with 0 ≤ lower ≤ upper.
    """
    if not is_real_within(lower, least=0) or not is_real_within(upper, least=lower):
        raise UserError(
            f"{name} has to be from a number of at least 0 to one that is not less; received "
            f"{lower!r} and {upper!r}."
        )
    return float(lower), float(upper)
