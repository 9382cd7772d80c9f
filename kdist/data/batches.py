"""`tf.data` batches for training and evaluation, from arrays in memory."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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
_SHIFT = 0.2
_SEED_BITS = 32  # of a seed; above them is which augmentation draws


class Augmentation(Protocol):
    """Changes images at random, as `RandomCrop` and its like do."""

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return a changed copy of a batch, which depends on the images and the seed alone."""


def training_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    batch_size: int,
    seed: int,
    standardization: Callable[[Any], Any],
    augment: bool | Augmentation | Sequence[Augmentation] = True,
    shift: float = _SHIFT,
    whole_pixels: bool = False,
) -> Any:
    """Make shuffled, augmented and standardized batches; one iteration is one epoch.

    Order and augmentation differ from epoch to epoch. Batch k of epoch e depends only on `seed`, e
    and k, not on the number of replicas or on earlier iterations.

    Within `model.fit`, the epoch is the one being trained, also for other iterations over the same
    data, such as those of a callback. Outside `fit`, each new iteration is the next epoch, starting
    with 0. With `steps_per_epoch`, or after `repeat`, one iterator gives several epochs: they are
    counted in the same way, starting with `initial_epoch`, and other iterations over the data
    during `fit` are counted, too.

    Args:
        images: (images, height, width, channels), kept in memory unchanged.
        labels: Integers, (images,); or one-hot floats, (images, classes).
        batch_size: The global batch: images per step, over all replicas. The last batch of an
            epoch has the remaining images.
        seed: Determines every epoch; `tf.random.set_seed` does not.
        standardization: Called with an unscaled float32 batch of `images`; returns float32.
        augment: True flips and shifts the images like `random_flip_and_shift`, before
            standardization; for this, they are stored in the way of `RandomVariants`. A list of
            `RandomCrop`, `RandomHorizontalFlip`, `RandomAffine`, `RandomBrightness`,
            `RandomContrast` and `ColorJitter`, or of functions like these, is applied in order.
            Each is called with an unscaled float32 batch and its own `seed` of two int64.
        shift: Largest shift with `augment=True`, as in `random_flip_and_shift`.
        whole_pixels: Shift by whole pixels with `augment=True`, as in `random_flip_and_shift`.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels, or float32 ones if they are
        one-hot.

    Raises:
        UserError: If there are no images, the numbers of images and labels differ, or `batch_size`
            is not an integer of at least 1, or if `augment` is invalid.

    Example:
        >>> train = training_batches(data.train_images, data.train_labels, batch_size=128,
        ...                          seed=1, standardization=standardization)
        >>> crops = training_batches(data.train_images, data.train_labels, batch_size=128, seed=1,
        ...                          augment=[RandomCrop(24), RandomHorizontalFlip()],
        ...                          standardization=tf.image.per_image_standardization)
    """
    _check(images, labels, batch_size)
    changes = _changes(augment, shift, whole_pixels)
    order = EpochOrder(len(images), batch_size=batch_size, seed=seed)
    with tf.device(_HOST):
        targets = _targets(labels)
        if augment is True:
            variants = RandomVariants(images, shift=shift, whole_pixels=whole_pixels)
        else:
            pixels = tf.constant(images)

    def batch(number: Any) -> Any:
        indices = order(number)
        if augment is True:
            # Mean and deviation pass through interpolation, which takes bytes sooner than floats.
            chosen = variants(indices, seed=tf.stack([tf.constant(seed, tf.int64), number]))
        else:
            chosen = tf.cast(tf.gather(pixels, indices), tf.float32)
        for place, change in enumerate(changes):
            # Numbers of batches and of epochs are in the second word.
            own = tf.constant(seed + (place << _SEED_BITS), tf.int64)
            chosen = change(chosen, seed=tf.stack([own, number]))
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
        standardization: As in `training_batches`, computed from the training images.

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


def _changes(
    augment: bool | Augmentation | Sequence[Augmentation], shift: float, whole_pixels: bool
) -> list[Augmentation]:
    """Return the changes that `augment` lists, without the one that is built in."""
    if isinstance(augment, bool):
        return []
    changes: list[Any] = list(augment) if isinstance(augment, list | tuple) else [augment]
    if not all(callable(change) for change in changes):
        raise UserError(
            f"augment={augment!r}; expected True, False, or a list of RandomCrop(32, padding=4), "
            "RandomHorizontalFlip() and the like."
        )
    if shift != _SHIFT or whole_pixels:
        raise UserError(
            f"shift={shift!r} and whole_pixels={whole_pixels!r} are for augment=True, and augment "
            "is a list: remove them, or add RandomCrop(32, padding=4) to the list."
        )
    return changes


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
