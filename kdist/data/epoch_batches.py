"""`EpochBatches`: a data set whose batch k of epoch e is a function of e and k."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .. import _upstream
from .epoch_number import EpochNumber

# Called with the number of a batch, int64: epoch * batches of an epoch + place in the epoch.
MakeBatch = Callable[[Any], Any]


class EpochBatches(_upstream.FitData):
    """Batches that depend on their number, and on nothing that was drawn before.

    Args:
        make_batch: Makes a batch of its number: epoch * steps + its place in the epoch.
        steps: Batches in an epoch.
        batch_size: Samples of a full batch.

    Attributes:
        dataset: A finite `tf.data.Dataset`. Each iteration over it is an epoch: within `fit` the
            one that is trained, elsewhere the one after that of the iteration before.
    """

    def __init__(self, make_batch: MakeBatch, *, steps: int, batch_size: int) -> None:
        _upstream.patches.install_for_data()
        self.batch_size = batch_size
        self._make_batch, self._steps = make_batch, steps
        self._number = EpochNumber()
        self._unused: list[_FitBatches] = []
        numbers = tf.data.Dataset.range(1).flat_map(self._numbers)
        counted = numbers.apply(tf.data.experimental.assert_cardinality(steps))
        self.dataset = prepared(counted, make_batch)
        _upstream.attach(self.dataset, self)

    def for_fit(self) -> "_FitBatches":
        """A data set for one fit, apart from every other iteration over the data."""
        return self._unused.pop() if self._unused else _FitBatches(self)

    def hold(self, epoch: int) -> None:
        """Have every iterator of `dataset` that begins from now on give this epoch."""
        self._number.hold(epoch)

    def release(self) -> None:
        """Have the iterators that begin count the epochs again."""
        self._number.release()

    def count_from(self, epoch: int) -> None:
        """Have the next iterator that begins give this epoch, the one after it the next."""
        self._number.count_from(epoch)

    def _numbers(self, _: Any) -> Any:
        # Read once, as the iterator begins: several may be read at the same time.
        first = self._number.next() * self._steps
        return tf.data.Dataset.range(first, first + self._steps)


class _FitBatches(_upstream.FitDataset):
    """The same batches for one fit.

    An iterator of it is made sooner, as it has one function. The epoch is read with every batch,
    which is right where one iterator is read at a time, to its end.
    """

    def __init__(self, data: EpochBatches) -> None:
        self._data = data
        self._number = EpochNumber()
        self.dataset = self.starting_at(0)
        _upstream.attach(self.dataset, data)

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
