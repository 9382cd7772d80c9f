"""`tf.data` batches for training and evaluation from arrays in memory, with random access."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .._upstream import all_patches
from .._upstream.running_fits import attach_fit_data
from ..arguments import positive_integer
from ..errors import UserError
from .flip_and_shift import RandomFlipAndShift

# Device of tf.data. By default TensorFlow would place images and numbers on the first GPU.
_HOST = "/CPU:0"
_SEED_BITS = 32  # lower bits of a transform's seed; the number of the transform is above them
# Rounds of the cipher that shuffles. The four rounds of `tf.random.experimental.index_shuffle` are
# too few: with 60,000 samples sorted by class, the number of samples of a class in a batch has a
# third of the variance that it has in a random order.
_SHUFFLE_ROUNDS = 32
_COUNTED_KEY, _HELD_KEY = 0, 1  # keys of the table of an `EpochNumber`
_NOT_HELD = -1

# Called with the number of a batch, int64: epoch * batches per epoch + place in the epoch.
MakeBatch = Callable[[Any], Any]


class ImageTransform(Protocol):
    """A random change of images: `RandomCrop`, or a function of yours."""

    def __call__(self, images: Any, *, seed: Any) -> Any:
        """Return a changed copy of a batch, which depends only on the images and the seed."""


def training_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    batch_size: int,
    seed: int,
    standardization: Callable[[Any], Any],
    augment: bool | Sequence[ImageTransform] = True,
    shift: float = 0.2,
    whole_pixels: bool = False,
) -> Any:
    """Create shuffled, augmented and standardized batches; each iteration is an epoch.

    Batch k of epoch e depends only on `seed`, e and k, not on the number of replicas or on earlier
    iterations.

    During `model.fit`, each iteration has the batches of the epoch in training, also an iteration
    by a callback. Outside `fit`, the first iteration is epoch 0, the second iteration is epoch 1,
    and so on. If `fit` has `steps_per_epoch`, or its data are repeated by `repeat`, iterations are
    counted in the same way from `initial_epoch`, including the iterations by a callback.

    Args:
        images: (images, height, width, channels), kept in memory unchanged.
        labels: Integers, (images,); or one-hot floats, (images, classes).
        batch_size: The global batch: images per step over all replicas. The last batch of an
            epoch has the remaining images.
        seed: Determines all epochs; `tf.random.set_seed` has no effect.
        standardization: Called with an unscaled float32 batch of `images`; returns float32.
        augment: True flips each image horizontally with probability 1/2, and shifts it uniformly,
            before standardization. Shifts use bilinear interpolation and repeat the edge; the
            images are stored twice. A list of `RandomCrop`, `RandomHorizontalFlip` and
            `RandomCutout`, or of similar functions, is applied in order. Each function is called
            with an unscaled float32 batch and its own `seed` of two int64.
        shift: Largest shift with `augment=True`, as a fraction of height and width, from 0 to 1.
        whole_pixels: Shift by whole pixels with `augment=True`, up to the largest shift rounded to
            an integer, each shift with the same probability.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels. One-hot labels are float32.

    Raises:
        UserError: There are no images, they lack an axis, the numbers of images and labels differ,
            or `batch_size` is not an integer of at least 1.

    Examples:
        >>> train = training_batches(data.train_images, data.train_labels, batch_size=128,
        ...                          seed=1, standardization=standardization)
        >>> crops = training_batches(data.train_images, data.train_labels, batch_size=128, seed=1,
        ...                          augment=[RandomCrop(24), RandomHorizontalFlip()],
        ...                          standardization=tf.image.per_image_standardization)
    """
    _check_arrays(images, labels, batch_size)
    transforms = [] if isinstance(augment, bool) else augment
    order = EpochOrder(len(images), batch_size=batch_size, seed=seed)
    with tf.device(_HOST):
        targets = _make_label_tensor(labels)
        if augment is True:
            flip_and_shift = RandomFlipAndShift(images, shift=shift, whole_pixels=whole_pixels)
        else:
            pixels = tf.constant(images)

    def make_batch(batch_number: Any) -> Any:
        indices = order(batch_number)
        if augment is True:
            # Mean and deviation pass through interpolation, which converts bytes faster than
            # floats.
            batch = flip_and_shift(
                indices, seed=tf.stack([tf.constant(seed, tf.int64), batch_number])
            )
        else:
            batch = tf.cast(tf.gather(pixels, indices), tf.float32)
        for place, transform in enumerate(transforms):
            # `EpochOrder` draws with a negative second word, so its draws differ.
            transform_seed = tf.constant(seed + (place << _SEED_BITS), tf.int64)
            batch = transform(batch, seed=tf.stack([transform_seed, batch_number]))
        return standardization(batch), tf.gather(targets, indices)

    return EpochBatches(make_batch, steps=order.steps, batch_size=batch_size).dataset


def evaluation_batches(
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    batch_size: int,
    standardization: Callable[[Any], Any],
) -> Any:
    """Create standardized batches in the order of the arrays.

    Args:
        images: As in `training_batches`.
        labels: As in `training_batches`.
        batch_size: As in `training_batches`.
        standardization: As in `training_batches`, computed from the training images.

    Returns:
        A finite `tf.data.Dataset` of float32 images and int32 labels, in the order of the arrays.
        One-hot labels are float32.

    Raises:
        UserError: As in `training_batches`.

    Examples:
        >>> test = evaluation_batches(data.test_images, data.test_labels, batch_size=256,
        ...                           standardization=standardization)
    """
    _check_arrays(images, labels, batch_size)
    with tf.device(_HOST):
        pixels = tf.constant(images)
        targets = _make_label_tensor(labels)

    def make_batch(indices: Any) -> Any:
        batch = tf.cast(tf.gather(pixels, indices), tf.float32)
        return standardization(batch), tf.gather(targets, indices)

    return make_dataset(tf.data.Dataset.range(len(images)).batch(batch_size), make_batch)


def _make_label_tensor(labels: npt.NDArray[Any]) -> Any:
    return tf.constant(labels, tf.int32 if np.ndim(labels) == 1 else tf.float32)


def _check_arrays(images: npt.NDArray[Any], labels: npt.NDArray[Any], batch_size: int) -> None:
    if np.ndim(images) != 4:
        raise UserError(
            f"images has the shape {np.shape(images)}, but has to have the shape (images, height,"
            " width, channels)"
        )
    if len(images) != len(labels) or not len(images):
        raise UserError(
            f"received {len(images)} images and {len(labels)} labels: pass one label per image, and"
            " at least one image"
        )
    positive_integer("batch_size", batch_size, hint="pass the number of images in a step")


class EpochOrder:
    """A random order of the samples of every epoch, with random access to batches.

    Args:
        count: Number of samples.
        batch_size: Samples per batch; the last batch of an epoch has the remaining samples.
        seed: Determines the order, together with the number of the epoch.
    """

    def __init__(self, count: int, *, batch_size: int, seed: int) -> None:
        self.steps = -(-count // batch_size)
        self._count, self._batch_size, self._seed = count, batch_size, seed

    def __call__(self, number: Any) -> Any:
        """Return the indices of a batch's samples.

        Args:
            number: Number of the batch, int64: epoch * `steps` + place in the epoch.

        Returns:
            Indices of samples, int64.
        """
        epoch, place = number // self._steps64, number % self._steps64
        first = place * self._batch_size
        places = tf.range(first, tf.minimum(first + self._batch_size, self._count))
        # The cipher uses only a few bits of each of the key's three words, so the epoch would be a
        # bad key: the key is random. The seeds of random transforms are `seed` and the number of a
        # batch, which is at least 0; a negative number gives different random numbers.
        key = tf.random.stateless_uniform(
            [3], tf.stack([tf.constant(self._seed, tf.int64), -1 - epoch]), None, None, tf.int32
        )
        last = tf.constant(self._count - 1, tf.int64)
        return tf.raw_ops.RandomIndexShuffle(
            index=places, seed=key, max_index=last, rounds=_SHUFFLE_ROUNDS
        )

    @property
    def _steps64(self) -> Any:
        return tf.constant(self.steps, tf.int64)


class EpochBatches:
    """Batches that depend only on their number, not on earlier draws.

    Args:
        make_batch: Makes a batch from its number: epoch * steps + place in the epoch.
        steps: Batches per epoch.
        batch_size: Samples of a full batch.

    Attributes:
        dataset: A finite `tf.data.Dataset`. Each iteration is an epoch: within `fit` the epoch in
            training, outside `fit` the next epoch.
        number: The epoch that the next iterator of `dataset` begins.
    """

    def __init__(self, make_batch: MakeBatch, *, steps: int, batch_size: int) -> None:
        all_patches.install_for_data()
        self.batch_size = batch_size
        self._make_batch, self._steps = make_batch, steps
        self.number = EpochNumber()
        self._unused: list[_FitBatches] = []
        batch_numbers = tf.data.Dataset.range(1).flat_map(self._make_numbers)
        batch_numbers = batch_numbers.apply(tf.data.experimental.assert_cardinality(steps))
        self.dataset = make_dataset(batch_numbers, make_batch)
        attach_fit_data(self.dataset, self)

    def for_fit(self) -> "_FitBatches":
        """Return a data set for a single fit, separate from all iterations over the data."""
        return self._unused.pop() if self._unused else _FitBatches(self)

    def _make_numbers(self, _: Any) -> Any:
        # Read once, when the iterator begins: several iterators may be read at the same time.
        first = self.number.read_next() * self._steps
        return tf.data.Dataset.range(first, first + self._steps)


class _FitBatches:
    """The same batches for a single fit.

    An iterator of this data set starts faster, as the data set has a single function. The epoch is
    read with every batch, so only a single iterator may be read at a time.
    """

    def __init__(self, data: EpochBatches) -> None:
        self._data = data
        self._number = EpochNumber()
        self.dataset = self.starting_at(0)
        attach_fit_data(self.dataset, data)

    def begin(self, epoch: int) -> None:
        """Let new iterators return the batches of this epoch."""
        self._number.hold(epoch)

    def starting_at(self, batch: int) -> Any:
        """Return the data set of the begun epoch, without the batches before `batch`."""
        steps = self._data._steps
        places = tf.data.Dataset.range(batch, steps)
        return make_dataset(
            places, lambda place: self._data._make_batch(self._number.read_held() * steps + place)
        )

    def end(self) -> None:
        """Keep the data set for the next fit."""
        self._data._unused.append(self)


def make_dataset(batch_numbers: Any, make_batch: MakeBatch) -> Any:
    """Map a data set of batch numbers to batches, in order and with prefetching.

    Args:
        batch_numbers: A `tf.data.Dataset` of arguments for `make_batch`.
        make_batch: Returns a batch.

    Returns:
        A `tf.data.Dataset` of batches.
    """
    options = tf.data.Options()
    options.deterministic = True
    # Arrays have no files to shard by. The DATA policy avoids the warning of the AUTO policy.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = batch_numbers.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


class EpochNumber:
    """The number of an epoch, from 0: held at a value, or increased by each new iterator.

    A table stores the number. A variable would become a variable per replica in a strategy's scope.
    """

    def __init__(self) -> None:
        with tf.device(_HOST):
            self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, _NOT_HELD)
        self._write(_COUNTED_KEY, 0)
        self._write(_HELD_KEY, _NOT_HELD)

    def hold(self, epoch: int) -> None:
        """Let every new iterator return this epoch."""
        self._write(_HELD_KEY, epoch)

    def release(self) -> None:
        """Let new iterators count epochs again."""
        self._write(_HELD_KEY, _NOT_HELD)

    def count_from(self, epoch: int) -> None:
        """Number the next iterator's epoch `epoch`, the following epochs `epoch` + 1, …."""
        self._write(_COUNTED_KEY, epoch)

    def read_held(self) -> Any:
        """Return the held epoch, or `_NOT_HELD`, as an int64 tensor. Data sets call this method."""
        return tf.ensure_shape(self._table.lookup(tf.constant(_HELD_KEY, tf.int64)), ())

    def read_next(self) -> Any:
        """Return the epoch of a new iterator as an int64 tensor. Data sets call this method."""
        held = self.read_held()
        counted = tf.ensure_shape(self._table.lookup(tf.constant(_COUNTED_KEY, tf.int64)), ())
        is_held = held > _NOT_HELD
        self._table.insert(
            tf.constant(_COUNTED_KEY, tf.int64), tf.where(is_held, counted, counted + 1)
        )
        return tf.where(is_held, held, counted)

    def _write(self, name: int, epoch: int) -> None:
        with tf.device(_HOST):
            self._table.insert(tf.constant(name, tf.int64), tf.constant(epoch, tf.int64))
