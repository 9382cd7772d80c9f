"""`tf.data` batches for training and evaluation, from arrays in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..arguments import as_integer
from ..errors import UserError
from .augmentation import RandomVariants
from .epoch_batches import EpochBatches, prepared
from .epoch_order import EpochOrder

# Where tf.data works. TensorFlow would put the images on the first GPU.
_HOST = "/CPU:0"


def training_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    batch_size: int,
    seed: int,
    standardization: Callable[[Any], Any],
    augment: bool = True,
    shift: float = 0.2,
    whole_pixels: bool = False,
) -> Any:
    """Make shuffled, augmented and standardized batches; one iteration is one epoch.

    Order and augmentation differ from epoch to epoch. Batch k of epoch e depends on `seed`, e and k
    alone: not on the number of replicas, nor on what was iterated over before.

    Within `model.fit` the epoch is the one that is trained, also for other iterations over the same
    data, such as those of a callback. Outside, each iteration that begins is the epoch after that
    of the one before, from 0 on. With `steps_per_epoch`, or behind `repeat`, one iterator gives
    several epochs: they are counted in the same way, from `initial_epoch` on, and other iterations
    over the data during `fit` are counted too.

    Args:
        images: (images, height, width, channels), kept in memory unchanged.
        labels: Integers, (images,); or one-hot floats, (images, classes).
        batch_size: The global batch: images per step, over all replicas. The last batch of an
            epoch has the remaining images.
        seed: Determines every epoch; `tf.random.set_seed` does not.
        standardization: Called with a float32 batch of `images`, not scaled; returns float32.
        augment: Flip and shift the images as `random_flip_and_shift` does, before standardization.
            For this they are stored as `RandomVariants` does.
        shift: Largest shift, as in `random_flip_and_shift`.
        whole_pixels: Shift by whole pixels, as in `random_flip_and_shift`.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels, or float32 ones if they are
        one-hot.

    Raises:
        UserError: If there are no images, the numbers of images and labels differ, or `batch_size`
            is not an integer of at least 1.

    Example:
        >>> train = training_batches(data.train_images, data.train_labels, batch_size=128,
        ...                          seed=1, standardization=standardization)
    """
    _check(images, labels, batch_size)
    order = EpochOrder(len(images), batch_size=batch_size, seed=seed)
    with tf.device(_HOST):
        targets = _targets(labels)
        if augment:
            variants = RandomVariants(images, shift=shift, whole_pixels=whole_pixels)
        else:
            pixels = tf.constant(images)

    def batch(number: Any) -> Any:
        indices = order(number)
        if augment:
            # Mean and deviation pass through interpolation, which takes bytes sooner than floats.
            chosen = variants(indices, seed=tf.stack([tf.constant(seed, tf.int64), number]))
        else:
            chosen = tf.cast(tf.gather(pixels, indices), tf.float32)
        return standardization(chosen), tf.gather(targets, indices)

    return EpochBatches(batch, steps=order.steps, batch_size=batch_size).dataset


def evaluation_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    batch_size: int,
    standardization: Callable[[Any], Any],
) -> Any:
    """Make standardized batches in the order of the arrays.

    Args:
        images: As in `training_batches`.
        labels: As in `training_batches`.
        batch_size: As in `training_batches`.
        standardization: As in `training_batches`, measured on the training images.

    Returns:
        As `training_batches` does, in the order of the arrays.

    Raises:
        UserError: As in `training_batches`.

    Example:
        >>> test = evaluation_batches(data.test_images, data.test_labels, batch_size=256,
        ...                           standardization=standardization)
    """
    _check(images, labels, batch_size)
    with tf.device(_HOST):
        pixels = tf.constant(images)
        targets = _targets(labels)

    def batch(indices: Any) -> Any:
        chosen = tf.cast(tf.gather(pixels, indices), tf.float32)
        return standardization(chosen), tf.gather(targets, indices)

    return prepared(tf.data.Dataset.range(len(images)).batch(batch_size), batch)


def _targets(labels: npt.NDArray[Any]) -> Any:
    return tf.constant(labels, tf.int32 if np.ndim(labels) == 1 else tf.float32)


def _check(images: npt.NDArray[Any], labels: npt.NDArray[Any], batch_size: int) -> None:
    if len(images) != len(labels) or not len(images):
        raise UserError(
            f"Received {len(images)} images and {len(labels)} labels; "
            "expected one label per image, and at least one image."
        )
    if (as_integer(batch_size) or 0) < 1:
        raise UserError(f"batch_size={batch_size!r}; expected an integer of at least 1.")
