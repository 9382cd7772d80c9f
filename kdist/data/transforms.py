"""Random changes of training images: windows, flips, rotations, contrast and colors."""

import math
import typing
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..arguments import as_integer, as_real, is_real_within
from ..errors import UserError

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]
PADDING_MODES: tuple[str, ...] = typing.get_args(PaddingMode)
_MOST_DEGREES, _MOST_SHEAR = 180.0, 89.0
_RED_GREEN_BLUE = 3
# Rec. 601's luma, as torchvision and Pillow have it.
_GRAY = np.array([[0.2989], [0.587], [0.114]], np.float32)


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
        self.size = _check_size(size)
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
        images = _as_images(images)
        _check_fits(images, self.size, self.padding)
        channels = images.shape[3]
        if self.padding:
            images = self._padded(images)
        free = tf.cast(tf.shape(images)[1:3] - self.size, tf.float32)
        places = _whole(tf.stack(_draw(2, images, seed), 1), free)
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
    """Mirrors each image with probability 1/2, for `training_batches(augment=…)`.

    Call arguments:
        images: float32, (images, height, width, channels).
        seed: Two integers; the same seed gives the same result for the same number of images.

    Raises:
        UserError: The images are of another type or shape.

    Example:
        >>> RandomHorizontalFlip()(tf.zeros((128, 32, 32, 3)), seed=(2026, 1)).shape
        TensorShape([128, 32, 32, 3])
    """

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, some of them mirrored; see the class."""
        images = _as_images(images)
        (side,) = _draw(1, images, seed)
        # To reverse no more than one column changes nothing. Choosing between two batches takes
        # several times as long.
        columns = tf.where(side < 0.5, tf.shape(images)[2], 1)
        return tf.reverse_sequence(images, columns, seq_axis=2, batch_axis=0)


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
        self.size = _check_size(size)
        values = [as_real(value) for value in _as_tuple(fill, 1)]
        if not values or any(value is None or not math.isfinite(value) for value in values):
            raise UserError(
                f"fill={fill!r}; expected a finite number, or one for each channel of the images."
            )
        self.fill = values

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, a window of each covered; see the class."""
        images = _as_images(images)
        _check_fits(images, self.size)
        if images.shape[3] is not None and len(self.fill) not in (1, images.shape[3]):
            raise UserError(
                f"fill has {len(self.fill)} values, but images of shape {images.shape} have "
                f"{images.shape[3]} channels: pass one for each, or one for all."
            )
        sides = tf.unstack(tf.shape(images)[1:3])
        covered = [
            _covered(side, size, place)
            for side, size, place in zip(sides, self.size, _draw(2, images, seed), strict=True)
        ]
        window = covered[0][:, :, tf.newaxis] & covered[1][:, tf.newaxis, :]
        return tf.where(window[..., tf.newaxis], tf.constant(self.fill, tf.float32), images)


def _covered(side: Any, size: int, place: Any) -> Any:
    """Whether each position along a side is in the window of each image: (images, side)."""
    free = tf.cast(side - size, tf.float32)
    first = _whole(place, free)[:, tf.newaxis]
    positions = tf.range(tf.cast(side, tf.float32))
    return (positions >= first) & (positions < first + size)


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
        self.degrees = _check_amount("degrees", degrees, most=_MOST_DEGREES)
        self.shear = _check_amount("shear", shear, most=_MOST_SHEAR)
        parts = _as_tuple(translate, 2)
        if len(parts) != 2:
            raise UserError(f"translate={translate!r}; expected fractions of height and width.")
        self.translate = tuple(_check_amount("translate", part, most=1.0) for part in parts)
        if len(_as_tuple(scale, 1)) != 2:
            raise UserError(f"scale={scale!r}; expected the smallest and the largest factor.")
        self.scale = _check_range("scale", *scale)
        if not self.scale[0]:
            raise UserError(f"scale={scale!r}; expected factors above 0.")
        value = as_real(fill)
        if value is None or not math.isfinite(value):
            raise UserError(f"fill={fill!r}; expected a finite number, the value of the pixels.")
        self.fill = value

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, each moved in its own way; see the class."""
        images = _as_images(images)
        height, width = (tf.cast(side, tf.float32) for side in tf.unstack(tf.shape(images)[1:3]))
        angle, shear, scale, down, right = _draw(5, images, seed)
        radians = math.pi / 180
        angle = _between(angle, -self.degrees * radians, self.degrees * radians)
        shear = tf.tan(_between(shear, -self.shear * radians, self.shear * radians))
        scale = _between(scale, *self.scale)
        down = _between(down, -self.translate[0], self.translate[0]) * height
        right = _between(right, -self.translate[1], self.translate[1]) * width
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
            fill_mode="CONSTANT",
        )
        return tf.ensure_shape(moved, images.shape)


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
        self.max_delta = _check_amount("max_delta", max_delta)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images, brighter or darker; see the class."""
        images = _as_images(images)
        (change,) = _draw(1, images, seed)
        delta = _between(change, -self.max_delta, self.max_delta)
        return _like(_flat(images) + delta[:, tf.newaxis], images)


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
        self.lower, self.upper = _check_range("the factor of contrast", lower, upper)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images with more or less contrast; see the class."""
        images = _as_images(images)
        (change,) = _draw(1, images, seed)
        factor = _between(change, self.lower, self.upper)[:, tf.newaxis]
        rest = _as_row_means(_channel_means(images) * (1 - factor), images)
        return _like(_flat(images) * factor + rest, images)


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
        self.brightness = _check_amount("brightness", brightness)
        self.contrast = _check_amount("contrast", contrast)
        self.saturation = _check_amount("saturation", saturation)
        self.hue = _check_amount("hue", hue, most=0.5)
        self.most = _check_amount("most", most)

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return the images in other colors; see the class."""
        images = _as_images(images)
        if images.shape[3] != _RED_GREEN_BLUE:
            raise UserError(
                f"Images of shape {images.shape} have no colors; ColorJitter expects red, green and"
                " blue: remove it, or use RandomBrightness and RandomContrast."
            )
        brightness, contrast, saturation, hue = _draw(4, images, seed)
        if self.brightness:
            images = self._blended(images, 0.0, brightness, self.brightness)
        if self.contrast:
            mean = tf.matmul(_channel_means(images), _GRAY)
            images = self._blended(images, mean, contrast, self.contrast)
        if self.saturation:
            gray = tf.matmul(tf.reshape(images, (-1, _RED_GREEN_BLUE)), _GRAY)
            gray = _flat(_like(tf.tile(gray, (1, _RED_GREEN_BLUE)), images))
            images = self._blended(images, gray, saturation, self.saturation)
        if self.hue and self.most:
            images = self._turned(images, _between(hue, -self.hue, self.hue))
        return images

    def _blended(self, images: Any, other: Any, change: Any, amount: float) -> Any:
        """Blend images with a row each, or a number each, by factors about 1."""
        factor = _between(change, max(0.0, 1 - amount), 1 + amount)[:, tf.newaxis]
        rows = _flat(images) * factor + other * (1 - factor)
        return _like(tf.clip_by_value(rows, 0.0, self.most), images)

    def _turned(self, images: Any, turn: Any) -> Any:
        colors = tf.image.rgb_to_hsv(images / self.most)
        hue = colors[..., 0] + turn[:, tf.newaxis, tf.newaxis]
        colors = tf.concat([(hue - tf.floor(hue))[..., tf.newaxis], colors[..., 1:]], -1)
        return tf.image.hsv_to_rgb(colors) * self.most


def _as_images(images: Any) -> Any:
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


def _draw(numbers: int, images: Any, seed: Any) -> list[Any]:
    """Draw numbers for each image, from 0 to 1: as many tensors of shape (images,)."""
    # On CPUs, where tf.data works, this is Philox; naming it takes 42 operations.
    draws = tf.random.stateless_uniform((numbers, tf.shape(images)[0]), seed, alg="auto_select")
    return list(tf.unstack(draws, num=numbers))


def _between(draws: Any, lower: float, upper: float) -> Any:
    """Convert draws from 0 to 1 into numbers from `lower` to `upper`."""
    return lower + draws * (upper - lower)


def _whole(draws: Any, most: Any) -> Any:
    """Convert draws from 0 to 1 into integers from 0 to `most`, as float32, equally probable."""
    # The product may be rounded up to the number of integers.
    return tf.minimum(tf.floor(draws * (most + 1)), most)


def _flat(images: Any) -> Any:
    """Return images as rows: (images, height * width * channels).

    TensorFlow multiplies a row by a number several times sooner than four dimensions.
    """
    return tf.reshape(images, (tf.shape(images)[0], tf.reduce_prod(tf.shape(images)[1:])))


def _as_row_means(means: Any, images: Any) -> Any:
    """Repeat a number of each image and channel for all its pixels, as `_flat` has them."""
    return tf.tile(means, (1, tf.reduce_prod(tf.shape(images)[1:3])))


def _channel_means(images: Any) -> Any:
    """Mean of each channel of each image: (images, channels)."""
    count, height, width, channels = tf.unstack(tf.shape(images), num=4)
    pixels = tf.reshape(images, (count, height * width, channels))
    each = tf.fill((1, 1, height * width), 1 / tf.cast(height * width, tf.float32))
    return tf.matmul(each, pixels)[:, 0]


def _like(rows: Any, images: Any) -> Any:
    """Return rows as images again, of the shape of `images`."""
    return tf.ensure_shape(tf.reshape(rows, tf.shape(images)), images.shape)


def _as_tuple(values: Any, count: int) -> tuple[Any, ...]:
    """Return what a list, a tuple or an array of one axis has; a single value `count` times."""
    several = isinstance(values, tuple | list) or (isinstance(values, np.ndarray) and values.ndim)
    return tuple(values) if several else (values,) * count


def _check_size(size: Any) -> tuple[int, int]:
    """Return the height and width of a crop, given both or one number for both.

    Raises:
        UserError: They are not integers of at least 1.
    """
    sides = [as_integer(side) for side in _as_tuple(size, 2)]
    if len(sides) != 2 or any(side is None or side < 1 for side in sides):
        raise UserError(
            f"size={size!r}; expected height and width in pixels, or one integer for both, each at "
            "least 1."
        )
    height, width = sides
    return height, width  # type: ignore[return-value]


def _check_fits(images: Any, size: tuple[int, int], padding: int = 0) -> None:
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


def _check_amount(name: str, amount: Any, *, most: float | None = None) -> float:
    """Return how much something may change.

    Raises:
        UserError: It is not a number of at least 0, and at most `most`.
    """
    holds = is_real_within(amount, least=0) and (most is None or amount <= most)
    if not holds:
        bounds = "at least 0" if most is None else f"from 0 to {most:g}"
        raise UserError(f"{name}={amount!r}; expected a number {bounds}.")
    return float(amount)


def _check_range(name: str, lower: Any, upper: Any) -> tuple[float, float]:
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
