"""Random changes of brightness, contrast and color."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UserError
from .per_image import (
    RED_GREEN_BLUE,
    as_images,
    as_row_means,
    between,
    channel_means,
    check_amount,
    check_range,
    draw,
    flat,
    like,
)

# Rec. 601's luma, as torchvision and Pillow have it.
_GRAY = np.array([[0.2989], [0.587], [0.114]], np.float32)


class RandomBrightness:
    """Adds a random number to all pixels of an image, for `training_batches(augment=…)`.

    The pixels are not limited to their former range, as in `tf.image.random_brightness`.
    `tf.image.per_image_standardization` removes the number again.

    Args:
        max_delta: Largest number to add or subtract, in the images' own unit (0 to 255 in
            `training_batches`).

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: `max_delta` is not at least 0, or the images are of another type or shape.

    Example:
        >>> RandomBrightness(63)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __init__(self, max_delta: float) -> None:
        self.max_delta = check_amount("max_delta", max_delta)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, brighter or darker; see the class."""
        images = as_images(images)
        (change,) = draw(1, images, seed)
        delta = between(change, -self.max_delta, self.max_delta)
        return like(flat(images) + delta[:, tf.newaxis], images)


class RandomContrast:
    """Multiplies each channel's distance from its mean, for `training_batches(augment=…)`.

    The factor is the same for all channels of an image. The pixels are not limited to their former
    range, as in `tf.image.random_contrast`.

    Args:
        lower: Smallest factor, at least 0.
        upper: Largest factor.

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: A factor is out of range, or the images are of another type or shape.

    Example:
        >>> RandomContrast(0.2, 1.8)(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __init__(self, lower: float, upper: float) -> None:
        self.lower, self.upper = check_range("the factor of contrast", lower, upper)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images with more or less contrast; see the class."""
        images = as_images(images)
        (change,) = draw(1, images, seed)
        factor = between(change, self.lower, self.upper)[:, tf.newaxis]
        rest = as_row_means(channel_means(images) * (1 - factor), images)
        return like(flat(images) * factor + rest, images)


class ColorJitter:
    """Changes brightness, contrast, saturation and hue, for `training_batches(augment=…)`.

    Like `torchvision.transforms.ColorJitter`, with separate factors for every image, but always in
    this order. Brightness and contrast are blends with black and with the mean gray of the image,
    saturation is a blend with its gray version. After each of these, pixels are clipped to 0 to
    `most`.

    Args:
        brightness: The factor is from `1 - brightness`, but at least 0, to `1 + brightness`.
        contrast: As `brightness`.
        saturation: As `brightness`.
        hue: Largest turn of the hue, as a fraction of the circle, from 0 to 0.5.
        most: The value of white in the images: 255 in `training_batches`.

    Call arguments:
        images: float32, (images, height, width, 3), from 0 to `most`.
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: An amount is out of range, or the images are of another type or shape.

    Example:
        >>> jitter = ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2)
        >>> jitter(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __init__(
        self,
        *,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        hue: float = 0.0,
        most: float = 255.0,
    ) -> None:
        self.brightness = check_amount("brightness", brightness)
        self.contrast = check_amount("contrast", contrast)
        self.saturation = check_amount("saturation", saturation)
        self.hue = check_amount("hue", hue, most=0.5)
        self.most = check_amount("most", most)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images in other colors; see the class."""
        images = as_images(images)
        if images.shape[3] != RED_GREEN_BLUE:
            raise UserError(
                f"Images of shape {images.shape} have no colors; ColorJitter expects red, green and"
                " blue: remove it, or use RandomBrightness and RandomContrast."
            )
        brightness, contrast, saturation, hue = draw(4, images, seed)
        if self.brightness:
            images = self._blended(images, 0.0, brightness, self.brightness)
        if self.contrast:
            mean = tf.matmul(channel_means(images), _GRAY)
            images = self._blended(images, mean, contrast, self.contrast)
        if self.saturation:
            gray = tf.matmul(tf.reshape(images, (-1, RED_GREEN_BLUE)), _GRAY)
            gray = flat(like(tf.tile(gray, (1, RED_GREEN_BLUE)), images))
            images = self._blended(images, gray, saturation, self.saturation)
        if self.hue and self.most:
            images = self._turned(images, between(hue, -self.hue, self.hue))
        return images

    def _blended(self, images: Any, other: Any, change: Any, amount: float) -> Any:
        """Blend images with a row each, or a number each, by factors about 1."""
        factor = between(change, max(0.0, 1 - amount), 1 + amount)[:, tf.newaxis]
        rows = flat(images) * factor + other * (1 - factor)
        return like(tf.clip_by_value(rows, 0.0, self.most), images)

    def _turned(self, images: Any, turn: Any) -> Any:
        colors = tf.image.rgb_to_hsv(images / self.most)
        hue = colors[..., 0] + turn[:, tf.newaxis, tf.newaxis]
        colors = tf.concat([(hue - tf.floor(hue))[..., tf.newaxis], colors[..., 1:]], -1)
        return tf.image.hsv_to_rgb(colors) * self.most
