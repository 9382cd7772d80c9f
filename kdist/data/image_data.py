"""Labelled images as plain arrays, and their standardization."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import as_integer
from ..errors import UserError

_CHUNK_SIZE = 1024  # images at a time, to avoid a float64 copy of all images


@dataclasses.dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images with their labels.

    Args:
        name: The name of the data set, such as `"Fashion-MNIST"`.
        source: Description of the source of the images.
        train_images: uint8, (images, height, width, channels).
        train_labels: Integers from 0 to classes - 1, (images,).
        test_images: Like `train_images`, with the same height, width and channels.
        test_labels: Like `train_labels`.
        class_names: The name of each label.

    Examples:
        >>> data = kdist.data.fashion_mnist(sample=True)
        >>> data.image_shape, data.classes
        ((28, 28, 1), 10)
    """

    name: str
    source: str
    train_images: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.integer]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.integer]
    class_names: tuple[str, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        _, height, width, channels = self.train_images.shape
        return height, width, channels

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    def subset(self, n: int) -> "ImageData":
        """Take the first `n` training images, and at most `n` test images.

        Args:
            n: Number of training images, from 1 to all. If there are fewer than `n` test images,
                all test images are kept.

        Raises:
            UserError: `n` is less than 1 or more than the number of training images.

        Examples:
            >>> kdist.data.fashion_mnist(sample=True).subset(512).train_images.shape
            (512, 28, 28, 1)
        """
        if not 1 <= (as_integer(n) or 0) <= len(self.train_images):
            raise UserError(
                f"received subset(n={n!r}) of {self.name}: n has to be an integer from 1 to"
                f" {len(self.train_images)}, the number of training images"
            )
        return dataclasses.replace(
            self,
            train_images=self.train_images[:n],
            train_labels=self.train_labels[:n],
            test_images=self.test_images[:n],
            test_labels=self.test_labels[:n],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Standardization:
    """Subtracts the mean and divides by the standard deviation, per channel.

    Args:
        mean: Mean per channel, float64, (channels,), in the units of the images.
        deviation: Standard deviation per channel, like `mean`; positive.

    Examples:
        >>> standardization = Standardization.of(data.train_images)
        >>> standardization(data.test_images).dtype
        dtype('float32')
    """

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]

    @classmethod
    def of(cls, images: npt.NDArray[Any]) -> "Standardization":
        """Measure mean and standard deviation per channel, over images, height and width.

        The deviation is the population's: the sum is divided by the number of pixels. A
        channel with a constant value gets deviation 1, so that it becomes 0 instead of NaN.

        Args:
            images: (images, height, width, channels), at least one pixel. Pass only training
                images, so that no information of the test set enters training.

        Raises:
            UserError: There are no images, or they do not have four dimensions.
        """
        if images.ndim != 4 or not images.size:
            raise UserError(
                "Mean and deviation need images of shape (images, height, width, channels), and at"
                f" least one image; received shape {images.shape}"
            )
        pixels = images.size // images.shape[-1]
        mean = sum(chunk.sum(axis=0) for chunk in _pixel_chunks(images)) / pixels
        # A second pass: E[x²] - mean² suffers from cancellation if the mean is large.
        squares = sum(np.square(chunk - mean).sum(axis=0) for chunk in _pixel_chunks(images))
        deviation = np.sqrt(squares / pixels)
        return cls(mean=mean, deviation=np.where(deviation > 0, deviation, 1.0))

    def __call__(self, images: Any) -> Any:
        """Standardize a batch.

        Args:
            images: (images, height, width, channels), of any real type: a NumPy array or a
                TensorFlow tensor.

        Returns:
            float32, as the same array type and shape.
        """
        mean = self.mean.astype(np.float32)
        # In a graph, TensorFlow turns the division by a constant into this product. Eager code has
        # to give the same results.
        scale = (1 / self.deviation).astype(np.float32)
        if isinstance(images, np.ndarray):
            return (images.astype(np.float32) - mean) * scale
        import tensorflow as tf  # the argument is a tensor, so TensorFlow is loaded

        return (tf.cast(images, tf.float32) - mean) * scale


def _pixel_chunks(images: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.float64]]:
    for start in range(0, len(images), _CHUNK_SIZE):
        yield images[start : start + _CHUNK_SIZE].reshape(-1, images.shape[-1]).astype(np.float64)
