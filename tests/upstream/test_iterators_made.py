"""`IteratorHistory` against the iterators that Keras makes, and what it reads of them."""

import warnings

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist._upstream.resumed_data import IteratorHistory
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator


class Data(DataAdapter):
    """Batches without content, which keeps the iterators made of it."""

    num_batches = None

    def __init__(self):
        self.iterators = []

    def __iter__(self):
        self.iterators.append(Read())
        return self.iterators[-1]


class Read:
    """An iterator that keeps the epoch that reads it first, and how much is read."""

    def __init__(self):
        self.first, self.batches = None, 0

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration

    def read(self, epoch, batches):
        self.first = epoch if self.first is None else self.first
        self.batches += batches


def made_by_keras(epochs, batches, steps_per_epoch, steps_per_execution, strategy):
    data = Data()
    data.num_batches = batches
    iterator = EpochIterator(
        data, steps_per_epoch=steps_per_epoch, steps_per_execution=steps_per_execution
    )
    iterator._distribute_strategy = strategy
    iterator._get_iterator = lambda: data
    for epoch in range(epochs):
        for begin, end, of_epoch in iterator._enumerate_iterator():
            of_epoch.read(epoch, end - begin + 1)
    current = iterator._current_iterator if steps_per_epoch else None
    return [[use.first, use.batches] for use in data.iterators], current is not None


@settings(max_examples=300, deadline=None)
@given(
    epochs=st.integers(0, 6),
    batches=st.one_of(st.none(), st.integers(1, 12)),
    steps_per_epoch=st.one_of(st.none(), st.integers(1, 12)),
    steps_per_execution=st.integers(1, 4),
)
def test_they_are_those_that_keras_makes(epochs, batches, steps_per_epoch, steps_per_execution):
    if batches is None and steps_per_epoch is None:
        return  # without end
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*ran out of data")
        expected, is_read_on = made_by_keras(
            epochs, batches, steps_per_epoch, steps_per_execution, tf.distribute.get_strategy()
        )
    found = IteratorHistory(
        epochs,
        batches=batches,
        steps_per_epoch=steps_per_epoch,
        steps_per_execution=steps_per_execution,
    )
    assert [[made.read_from, made.batches] for made in found.iterators] == expected
    assert (found.current is not None) == is_read_on
    assert found.current is None or found.current is found.iterators[-1]


def test_each_epoch_reads_a_whole_iterator_if_the_end_is_unknown():
    found = IteratorHistory(3, batches=None, steps_per_epoch=None, steps_per_execution=1)
    assert [(made.epoch, made.batches) for made in found.iterators] == [
        (0, None),
        (1, None),
        (2, None),
    ]
    assert found.current is None
