"""`Standardization`: scale images to mean 0 and standard deviation 1."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .image_data import IMAGE_AXES

_CHUNK = 1024  # images at a time, so that a float64 copy of all of them is never made


@dataclasses.dataclass(frozen=True, eq=False)
class Standardization:
    """Subtracts the mean and divides by the standard deviation, per channel.

    Args:
        mean: float64, (channels,), in the units of the images.
        deviation: As `mean`, positive.

    Example:
        >>> standardization = Standardization.of(data.train_images)
        >>> standardization(data.test_images).dtype
        dtype('float32')
    """

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]

    @classmethod
    def of(cls, images: npt.NDArray[Any]) -> "Standardization":
        """Measure mean and standard deviation per channel, over images, height and width.

        The deviation is the population's (divided by the number of pixels). A channel that has
        the same value everywhere gets deviation 1, so that it becomes 0 instead of NaN.

        Args:
            images: (images, height, width, channels), at least one pixel; only the training
                images, so that nothing of the test set leaks into training.

        Raises:
            UserError: If there are no images, or they do not have four dimensions.
        """
        if images.ndim != len(IMAGE_AXES) or not images.size:
            raise UserError(
                f"Images of shape {images.shape} cannot be measured; expected "
                "(images, height, width, channels) with at least one image."
            )
        pixels = images.size // images.shape[-1]
        mean = sum(chunk.sum(axis=0) for chunk in _chunks(images)) / pixels
        # A second pass rather than E[x²] - mean², which cancels where the mean is large.
        squares = sum(np.square(chunk - mean).sum(axis=0) for chunk in _chunks(images))
        deviation = np.sqrt(squares / pixels)
        return cls(mean=mean, deviation=np.where(deviation > 0, deviation, 1.0))

    def __call__(self, images: Any) -> Any:
        """Standardize a batch.

        Args:
            images: (images, height, width, channels), of any real type: a NumPy array or a
                TensorFlow tensor.

        Returns:
            float32, of the same kind and shape.
        """
        mean = self.mean.astype(np.float32)
        # A graph turns division by a constant into this product; eager code has to agree with it.
        scale = (1 / self.deviation).astype(np.float32)
        if isinstance(images, np.ndarray):
            return (images.astype(np.float32) - mean) * scale
        import tensorflow as tf  # a tensor came, so it is loaded already

        return (tf.cast(images, tf.float32) - mean) * scale


def _chunks(images: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.float64]]:
    for start in range(0, len(images), _CHUNK):
        yield images[start : start + _CHUNK].reshape(-1, images.shape[-1]).astype(np.float64)
