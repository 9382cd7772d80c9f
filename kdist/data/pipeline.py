"""Batches for training and for evaluation, from arrays in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from kdist.arguments import as_integer
from kdist.data.augmentation import RandomVariants
from kdist.errors import UserError

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
    """Shuffled, standardized and randomly varied batches; one iteration is one epoch.

    Every epoch has another order and other variants. They are drawn on the global batch before a
    strategy divides it, so they do not depend on the number of replicas.

    Args:
        images: (images, height, width, channels), kept in memory as they are.
        labels: Integers, (images,).
        batch_size: The global batch: images a step, over all replicas. The last batch of an
            epoch holds what is left.
        seed: Determines every epoch, together with `tf.random.set_seed` where that is called.
        standardization: Called with a float32 batch of `images`, their values as they are; returns
            float32.
        augment: Vary the images as `random_flip_and_shift` does, before standardization; they are
            kept as `RandomVariants` keeps them.
        shift: Longest shift, as there.
        whole_pixels: Shift by whole pixels, as there.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels.

    Raises:
        UserError: When there are no images, not as many labels as images, or `batch_size` is
            not a positive integer.

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
    """Standardized batches in the order of the arrays.

    Args:
        images: As in `training_batches`.
        labels: As in `training_batches`.
        batch_size: As in `training_batches`.
        standardization: The one measured on the training images.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels.

    Raises:
        UserError: As `training_batches`.

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
            f"{len(images)} images and {len(labels)} labels were given; "
            "expected one label for each image, and at least one image."
        )
    if (as_integer(batch_size) or 0) < 1:
        raise UserError(f"batch_size={batch_size!r}; expected an integer of at least 1.")


def _batches(
    order: Any,
    images: npt.NDArray[Any],
    labels: npt.NDArray[np.integer],
    standardization: Callable[[Any], Any],
) -> Any:
    """The images as they are, in the order of batches of indices."""
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
