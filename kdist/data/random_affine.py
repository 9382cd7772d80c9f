"""`RandomAffine`: rotate, shift, scale and shear images at random."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..arguments import as_real
from ..errors import UserError
from .per_image import as_images, as_tuple, between, check_amount, check_range, draw

_MOST_DEGREES, _MOST_SHEAR = 180.0, 89.0
_CONSTANT = "CONSTANT"


class RandomAffine:
    """Rotates, shifts, scales and shears images, for `training_batches(augment=…)`.

    Like `torchvision.transforms.RandomAffine`, with bilinear interpolation and separate random
    numbers for every image, each uniform within its bounds. An image is sheared first, then scaled,
    rotated about its center, and shifted.

    Args:
        degrees: Largest rotation, in degrees, to either side.
        translate: Largest shift down or right, as fractions of height and width, or one for both.
        scale: Smallest and largest factor of the image's size.
        shear: Largest angle by which the image is sheared horizontally, in degrees.
        fill: Value of the pixels beyond the edge.

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: An argument is out of range, or the images are of another type or shape.

    Example:
        >>> RandomAffine(10, scale=(0.8, 1.2), shear=10)(images, seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __init__(
        self,
        degrees: float = 0.0,
        *,
        translate: float | Sequence[float] = 0.0,
        scale: Sequence[float] = (1.0, 1.0),
        shear: float = 0.0,
        fill: float = 0.0,
    ) -> None:
        self.degrees = check_amount("degrees", degrees, most=_MOST_DEGREES)
        self.shear = check_amount("shear", shear, most=_MOST_SHEAR)
        parts = as_tuple(translate, 2)
        if len(parts) != 2:
            raise UserError(f"translate={translate!r}; expected fractions of height and width.")
        self.translate = tuple(check_amount("translate", part, most=1.0) for part in parts)
        if len(as_tuple(scale, 1)) != 2:
            raise UserError(f"scale={scale!r}; expected the smallest and the largest factor.")
        self.scale = check_range("scale", *scale)
        if not self.scale[0]:
            raise UserError(f"scale={scale!r}; expected factors above 0.")
        value = as_real(fill)
        if value is None or not math.isfinite(value):
            raise UserError(f"fill={fill!r}; expected a finite number, the value of the pixels.")
        self.fill = value

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, each moved in its own way; see the class."""
        images = as_images(images)
        height, width = (tf.cast(side, tf.float32) for side in tf.unstack(tf.shape(images)[1:3]))
        angle, shear, scale, down, right = draw(5, images, seed)
        radians = math.pi / 180
        angle = between(angle, -self.degrees * radians, self.degrees * radians)
        shear = tf.tan(between(shear, -self.shear * radians, self.shear * radians))
        scale = between(scale, *self.scale)
        down = between(down, -self.translate[0], self.translate[0]) * height
        right = between(right, -self.translate[1], self.translate[1]) * width
        # From a pixel of the result to its place in the image: everything backwards.
        cosine, sine = tf.cos(angle) / scale, tf.sin(angle) / scale
        rows = [[cosine + shear * sine, sine - shear * cosine], [-sine, cosine]]
        middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
        x, y = -middle_x - right, -middle_y - down
        first = rows[0][0] * x + rows[0][1] * y + middle_x
        second = rows[1][0] * x + rows[1][1] * y + middle_y
        zero = tf.zeros_like(angle)
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=images,
            transforms=tf.stack([*rows[0], first, *rows[1], second, zero, zero], 1),
            output_shape=tf.shape(images)[1:3],
            fill_value=self.fill,
            interpolation="BILINEAR",
            fill_mode=_CONSTANT,
        )
        return tf.ensure_shape(moved, images.shape)
