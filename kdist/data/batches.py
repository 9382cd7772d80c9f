"""`tf.data` batches for training and evaluation, from arrays in memory; any can be made at once."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from .._upstream import patches
from .._upstream.fit_data import attach
from ..arguments import as_integer
from ..errors import UserError
from .flip_and_shift import RandomVariants

# Where tf.data works. TensorFlow would put images and numbers on the first GPU.
_HOST = "/CPU:0"
_SHIFT = 0.2
_SEED_BITS = 32  # of a seed; above them is which augmentation draws
# A cipher of this many rounds shuffles. The four of `tf.random.experimental.index_shuffle` do not:
# of 60,000 samples, a batch has classes that lie one after the other in too even parts (their
# variance is a third of that of random parts).
_ROUNDS = 32
_COUNTED, _HELD = 0, 1  # keys of the table of an `EpochNumber`
_NONE = -1

# Called with the number of a batch, int64: epoch * batches of an epoch + place in the epoch.
MakeBatch = Callable[[Any], Any]


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
        augment: True flips each image horizontally with probability 1/2 and shifts it, before
            standardization: uniformly, with bilinear interpolation, the edge repeated. For this,
            the images are stored twice. A list of `RandomCrop`, `RandomHorizontalFlip`
            and `RandomCutout`, or of functions like these, is applied in order. Each is called
            with an unscaled float32 batch and its own `seed` of two int64.
        shift: Largest shift with `augment=True`, as a fraction of height and width, from 0 to 1.
        whole_pixels: Shift by whole pixels with `augment=True`, up to the largest shift rounded to
            an integer, each shift with the same probability.

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


class EpochOrder:
    """A random order of samples in every epoch, of which any batch is found without the others.

    Args:
        count: Samples.
        batch_size: Samples of a batch; the last one of an epoch has the remaining ones.
        seed: Together with the epoch's number, determines its order.
    """

    def __init__(self, count: int, *, batch_size: int, seed: int) -> None:
        self.steps = -(-count // batch_size)
        self._count, self._batch_size, self._seed = count, batch_size, seed

    def __call__(self, number: Any) -> Any:
        """Return the samples of a batch.

        Args:
            number: Of the batch, int64: epoch * `steps` + place in the epoch.

        Returns:
            Indices of samples, int64.
        """
        epoch, place = number // self._steps64, number % self._steps64
        first = place * self._batch_size
        places = tf.range(first, tf.minimum(first + self._batch_size, self._count))
        # The cipher takes a few bits of each of three words, so that nearby words are no keys.
        # Epochs are negative as batches, which draw by the same seed, are not.
        key = tf.random.stateless_uniform(
            [3], tf.stack([tf.constant(self._seed, tf.int64), -1 - epoch]), None, None, tf.int32
        )
        last = tf.constant(self._count - 1, tf.int64)
        return tf.raw_ops.RandomIndexShuffle(index=places, seed=key, max_index=last, rounds=_ROUNDS)

    @property
    def _steps64(self) -> Any:
        return tf.constant(self.steps, tf.int64)


class EpochBatches:
    """Batches that depend on their number, and on nothing that was drawn before.

    Args:
        make_batch: Makes a batch of its number: epoch * steps + its place in the epoch.
        steps: Batches in an epoch.
        batch_size: Samples of a full batch.

    Attributes:
        dataset: A finite `tf.data.Dataset`. Each iteration over it is an epoch: within `fit` the
            one that is trained, elsewhere the one after that of the iteration before.
        number: The number of the epoch that an iterator of `dataset` begins.
    """

    def __init__(self, make_batch: MakeBatch, *, steps: int, batch_size: int) -> None:
        patches.install_for_data()
        self.batch_size = batch_size
        self._make_batch, self._steps = make_batch, steps
        self.number = EpochNumber()
        self._unused: list[_FitBatches] = []
        numbers = tf.data.Dataset.range(1).flat_map(self._numbers)
        counted = numbers.apply(tf.data.experimental.assert_cardinality(steps))
        self.dataset = prepared(counted, make_batch)
        attach(self.dataset, self)

    def for_fit(self) -> "_FitBatches":
        """A data set for one fit, apart from every other iteration over the data."""
        return self._unused.pop() if self._unused else _FitBatches(self)

    def _numbers(self, _: Any) -> Any:
        # Read once, as the iterator begins: several may be read at the same time.
        first = self.number.next() * self._steps
        return tf.data.Dataset.range(first, first + self._steps)


class _FitBatches:
    """The same batches for one fit.

    An iterator of it is made sooner, as it has one function. The epoch is read with every batch,
    which is right where one iterator is read at a time, to its end.
    """

    def __init__(self, data: EpochBatches) -> None:
        self._data = data
        self._number = EpochNumber()
        self.dataset = self.starting_at(0)
        attach(self.dataset, data)

    def begin(self, epoch: int) -> None:
        """Have the iterators that are made from now on give this epoch."""
        self._number.hold(epoch)

    def starting_at(self, batch: int) -> Any:
        """The data set of the epoch that was begun, without the batches before this one."""
        steps = self._data._steps
        places = tf.data.Dataset.range(batch, steps)
        return prepared(
            places, lambda place: self._data._make_batch(self._number.held() * steps + place)
        )

    def end(self) -> None:
        """Keep it for the next fit."""
        self._data._unused.append(self)


def prepared(numbers: Any, make_batch: MakeBatch) -> Any:
    """Make the batches of a data set of numbers, in their order, ahead of time.

    Args:
        numbers: A `tf.data.Dataset` of what `make_batch` takes.
        make_batch: Makes a batch.

    Returns:
        A `tf.data.Dataset` of batches.
    """
    options = tf.data.Options()
    options.deterministic = True
    # Arrays have no files to shard by; saying so spares the warning that AUTO prints.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = numbers.map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


class EpochNumber:
    """The number of an epoch, from 0: held, or counted by the iterators that begin.

    It is kept in a table, as a variable would become one for each replica within the scope of a
    strategy.
    """

    def __init__(self) -> None:
        with tf.device(_HOST):
            self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, _NONE)
        self._set(_COUNTED, 0)
        self._set(_HELD, _NONE)

    def hold(self, epoch: int) -> None:
        """Have every iterator that begins give this epoch."""
        self._set(_HELD, epoch)

    def release(self) -> None:
        """Have the iterators that begin count again."""
        self._set(_HELD, _NONE)

    def count_from(self, epoch: int) -> None:
        """Have the next iterator that begins give this epoch, the one after it the next."""
        self._set(_COUNTED, epoch)

    def held(self) -> Any:
        """The epoch that is held, int64, for a function of a data set."""
        return tf.ensure_shape(self._table.lookup(tf.constant(_HELD, tf.int64)), ())

    def next(self) -> Any:
        """The epoch of an iterator that begins, int64, for a function of a data set."""
        held = self.held()
        counted = tf.ensure_shape(self._table.lookup(tf.constant(_COUNTED, tf.int64)), ())
        is_held = held > _NONE
        self._table.insert(tf.constant(_COUNTED, tf.int64), tf.where(is_held, counted, counted + 1))
        return tf.where(is_held, held, counted)

    def _set(self, name: int, epoch: int) -> None:
        with tf.device(_HOST):
            self._table.insert(tf.constant(name, tf.int64), tf.constant(epoch, tf.int64))
