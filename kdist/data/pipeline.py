"""`tf.data` batches for training and evaluation, from arrays in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..arguments import as_integer
from ..errors import UserError
from .augmentation import RandomVariants

# Where tf.data works. TensorFlow would put the images on the first GPU.
_HOST = "/CPU:0"


def training_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[np.integer],
    *,
    batch_size: int,
    seed: int,
    standardization: Callable[[Any], Any],
    augment: bool = True,
    shift: float = 0.2,
    whole_pixels: bool = False,
) -> Any:
    """Make shuffled, augmented and standardized batches; one iteration is one epoch.

    Order and augmentation differ from epoch to epoch. They are drawn for the global batch before a
    strategy divides it, so they do not depend on the number of replicas.

    Args:
        images: (images, height, width, channels), kept in memory unchanged.
        labels: Integers, (images,).
        batch_size: The global batch: images per step, over all replicas. The last batch of an
            epoch has the remaining images.
        seed: Determines every epoch, together with `tf.random.set_seed` if that is called.
        standardization: Called with a float32 batch of `images`, not scaled; returns float32.
        augment: Flip and shift the images as `random_flip_and_shift` does, before standardization.
            For this they are stored as `RandomVariants` does.
        shift: Largest shift, as in `random_flip_and_shift`.
        whole_pixels: Shift by whole pixels, as in `random_flip_and_shift`.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels.

    Raises:
        UserError: If there are no images, the numbers of images and labels differ, or `batch_size`
            is not an integer of at least 1.

    Example:
        >>> train = training_batches(data.train_images, data.train_labels, batch_size=128,
        ...                          seed=1, standardization=standardization)
    """
    _check(images, labels, batch_size)
    order = tf.data.Dataset.range(len(images)).shuffle(len(images), seed=seed).batch(batch_size)
    if not augment:
        return _batches(order, images, labels, standardization)
    with tf.device(_HOST):
        variants = RandomVariants(images, shift=shift, whole_pixels=whole_pixels)
        targets = tf.constant(labels, tf.int32)

    def varied(indices: Any, draw: Any) -> Any:
        # Mean and deviation pass through interpolation, which takes bytes sooner than floats.
        batch = standardization(variants(indices, seed=tf.stack([draw, 0])))
        return batch, tf.gather(targets, indices)

    draws = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
    pairs = tf.data.Dataset.zip(order, draws)
    return _finished(pairs.map(varied, num_parallel_calls=tf.data.AUTOTUNE))


def evaluation_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[np.integer],
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
        A finite `tf.data.Dataset` of float32 images and int32 labels.

    Raises:
        UserError: As in `training_batches`.

    Example:
        >>> test = evaluation_batches(data.test_images, data.test_labels, batch_size=256,
        ...                           standardization=standardization)
    """
    _check(images, labels, batch_size)
    order = tf.data.Dataset.range(len(images)).batch(batch_size)
    return _batches(order, images, labels, standardization)


def _check(images: npt.NDArray[Any], labels: npt.NDArray[np.integer], batch_size: int) -> None:
    if len(images) != len(labels) or not len(images):
        raise UserError(
            f"Received {len(images)} images and {len(labels)} labels; "
            "expected one label per image, and at least one image."
        )
    if (as_integer(batch_size) or 0) < 1:
        raise UserError(f"batch_size={batch_size!r}; expected an integer of at least 1.")


def _batches(
    order: Any,
    images: npt.NDArray[Any],
    labels: npt.NDArray[np.integer],
    standardization: Callable[[Any], Any],
) -> Any:
    """Make batches of the images, not augmented, in the order of batches of indices."""
    with tf.device(_HOST):
        pixels = tf.constant(images)
        targets = tf.constant(labels, tf.int32)

    def take(indices: Any) -> Any:
        batch = tf.cast(tf.gather(pixels, indices), tf.float32)
        return standardization(batch), tf.gather(targets, indices)

    return _finished(order.map(take, num_parallel_calls=tf.data.AUTOTUNE))


def _finished(batches: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # Arrays have no files to shard by; saying so spares the warning that AUTO prints.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
