"""Crops of images: at random places for training, in the middle for evaluation."""

import typing
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from ..arguments import as_integer
from ..errors import UserError
from .per_image import as_images, check_fits, check_size, draw, whole

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
PADDING_MODES: tuple[str, ...] = typing.get_args(PaddingMode)


class RandomCrop:
    """Cuts a window out of each image at a random place, for `training_batches(augment=…)`.

    All places have the same probability, and are independent for every image.

    Args:
        size: Height and width of the windows in pixels, or one number for both.
        padding: Pixels to add on each side of the images first; `RandomCrop(32, padding=4)` shifts
            images of 32x32 pixels by at most 4.
        padding_mode: What these pixels are: black ("constant"), copies of the nearest pixel inside
            ("edge"), or the image mirrored, without ("reflect") or with ("symmetric") the pixel at
            its edge.

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

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
        self.size = check_size(size)
        whole = as_integer(padding)
        if whole is None or whole < 0:
            raise UserError(f"padding={padding!r}; expected an integer of at least 0, in pixels.")
        if padding_mode not in PADDING_MODES:
            raise UserError(
                f"padding_mode={padding_mode!r}; expected one of {', '.join(PADDING_MODES)}."
            )
        self.padding, self.padding_mode = whole, padding_mode

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return a window of each image; see the class."""
        images = as_images(images)
        check_fits(images, self.size, self.padding)
        channels = images.shape[3]
        if self.padding:
            images = self._padded(images)
        free = tf.cast(tf.shape(images)[1:3] - self.size, tf.float32)
        places = whole(tf.stack(draw(2, images, seed), 1), free)
        # This beats gathering rows and columns, and pixels.
        windows = tf.image.extract_glimpse(
            images, self.size, places, centered=False, normalized=False, noise="zero"
        )
        return tf.ensure_shape(windows, (images.shape[0], *self.size, channels))

    def _padded(self, images: Any) -> Any:
        sides = (self.padding, self.padding)
        if self.padding_mode == "constant":
            return tf.pad(images, ((0, 0), sides, sides, (0, 0)))
        for axis in (1, 2):
            size = tf.shape(images)[axis]
            if self.padding_mode == "edge":
                places = tf.clip_by_value(tf.range(-self.padding, size + self.padding), 0, size - 1)
            else:
                least = self.padding + (self.padding_mode == "reflect")
                if images.shape[axis] is not None and images.shape[axis] < least:
                    raise UserError(
                        f"padding={self.padding} of images of {images.shape[1]}x{images.shape[2]} "
                        f"pixels has no {self.padding_mode} pixels to take: choose a smaller one."
                    )
                places = tf.pad(tf.range(size), (sides,), self.padding_mode)
            images = tf.gather(images, places, axis=axis)
        return images


def center_crop(images: Any, size: int | Sequence[int]) -> Any:
    """Cut the center out of images, to evaluate models that were trained with `RandomCrop`.

    Args:
        images: (images, height, width, channels): a NumPy array or a tensor.
        size: Height and width in pixels, or one number for both.

    Returns:
        The same kind and type of images, (images, *size, channels). If an odd number of pixels is
        cut off, the bottom and right lose one more.

    Raises:
        UserError: `size` is out of range, or the images are smaller or of another shape.

    Example:
        >>> center_crop(data.test_images, 24).shape
        (10000, 24, 24, 3)
    """
    height, width = check_size(size)
    shape = getattr(images, "shape", ())
    if len(shape) != 4:
        raise UserError(
            f"Images are {type(images).__name__} of shape {tuple(shape)}; expected an array or a "
            "tensor of shape (images, height, width, channels)."
        )
    check_fits(images, (height, width))
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    return images[:, top : top + height, left : left + width]
