"""`RandomHorizontalFlip`: mirror images at random."""

from typing import Any

import tensorflow as tf

from .per_image import as_images, draw


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
        images = as_images(images)
        (side,) = draw(1, images, seed)
        # To reverse no more than one column changes nothing. Choosing between two batches takes
        # several times as long.
        columns = tf.where(side < 0.5, tf.shape(images)[2], 1)
        return tf.reverse_sequence(images, columns, seq_axis=2, batch_axis=0)
