"""`IteratorHistory` against the iterators that Keras makes, and what it reads of them."""

import itertools
import warnings

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist._upstream.resumed_data import IteratorHistory
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator


class Data(DataAdapter):
    """Batches without content, which keeps the iterators made of it.

    The lengths are those of the iterators, in turn.
    """

    num_batches = None

    def __init__(self, lengths):
        self.lengths = itertools.cycle(lengths)
        self.iterators = []

    def __iter__(self):
        self.iterators.append(Read(next(self.lengths)))
        return self.iterators[-1]


class Read:
    """An iterator that keeps the epoch that reads it first, and how much is read."""

    def __init__(self, length):
        self.length = length
        self.first, self.batches = None, 0

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration

    def read(self, epoch, batches):
        self.first = epoch if self.first is None else self.first
        if self.batches + batches > self.length:
            self.batches = None
            raise StopIteration
        self.batches += batches


def made_by_keras(epochs, known, lengths, steps_per_epoch, steps_per_execution):
    """Return the uses of all iterators, whether the last is read on, the length, and the ends."""
    data = Data(lengths)
    data.num_batches = known
    iterator = EpochIterator(
        data, steps_per_epoch=steps_per_epoch, steps_per_execution=steps_per_execution
    )
    iterator._distribute_strategy = tf.distribute.get_strategy()
    iterator._get_iterator = lambda: data
    ends = {}
    for epoch in range(epochs):
        with iterator.catch_stop_iteration():
            try:
                for begin, end, of_epoch in iterator._enumerate_iterator():
                    of_epoch.read(epoch, end - begin + 1)
            except StopIteration:
                ends[epoch] = iterator._steps_seen
                raise
    uses = [[use.first, use.batches] for use in data.iterators]
    is_read_on = steps_per_epoch is not None and iterator._current_iterator is not None
    return uses, is_read_on, iterator._num_batches, ends


@settings(max_examples=300, deadline=None)
@given(
    epochs=st.integers(0, 6),
    known=st.one_of(st.none(), st.integers(1, 12)),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    steps_per_epoch=st.one_of(st.none(), st.integers(1, 12)),
    steps_per_execution=st.integers(1, 4),
)
def test_they_are_those_that_keras_makes(
    epochs, known, lengths, steps_per_epoch, steps_per_execution
):
    """Of data of a known length, and of data that end after other batches in each epoch."""
    if known is not None:
        lengths = [known + steps_per_execution]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*ran out of data")
        expected, is_read_on, num_batches, ends = made_by_keras(
            epochs, known, lengths, steps_per_epoch, steps_per_execution
        )
    found = IteratorHistory(
        epochs,
        num_batches=known,
        ends=ends,
        steps_per_epoch=steps_per_epoch,
        steps_per_execution=steps_per_execution,
    )
    assert [[made.read_from, made.batches] for made in found.iterators] == expected
    assert found.num_batches == num_batches
    assert (found.current is not None) == is_read_on
    assert found.current is None or found.current is found.iterators[-1]
