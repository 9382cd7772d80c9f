"""The data of a fit by their kinds: how each is brought to a batch of an epoch."""

from typing import Any

import tensorflow as tf

from .dataset_state import DatasetState
from .fits import Fit, source_of
from .iterators_made import IteratorsMade


class DataSource:
    """Training data that are read from their beginning, what is not wanted dropped.

    Args:
        fit: The fit.
        inexact: What is not exact when a fit begins amid these data, one sentence; or `None`.
    """

    def __init__(self, fit: Fit, *, inexact: str | None = None) -> None:
        self.fit, self.inexact = fit, inexact
        self.epoch = fit.iterator
        self.adapter = fit.iterator.data_adapter

    def replay(self, history: IteratorsMade, epochs: int) -> None:
        """Bring the data to where the epochs before have left them.

        Args:
            history: The iterators of these epochs.
            epochs: Epochs before.
        """
        self.fit.count_from(self.fit.initial_epoch)
        for epoch in range(epochs):
            self.fit.begin_epoch(self.fit.initial_epoch + epoch)
            self.adapter.on_epoch_begin()
            for made in history.made:
                if made.made_in == epoch and made is not history.current:
                    _read(iter(self.epoch._get_iterator()), made.batches)
            self.adapter.on_epoch_end()
        self.fit.begin_epoch(self.fit.initial_epoch + epochs)

    def about_to_begin(self, batch: int) -> None:
        """Called before the epoch begins, with the batch that its iterator is to be made at."""

    def iterator_at(self, batch: int) -> Any:
        """Make an iterator, at a batch of what it gives."""
        iterator = iter(self.epoch._get_iterator())
        _read(iterator, batch)
        return iterator

    def has_ended(self) -> None:
        """Called after the epoch has ended."""

    def iterate(self, dataset: tf.data.Dataset) -> Any:
        """Make an iterator of another data set, as the fit makes those of its own."""
        return iter(self.epoch._distribute_strategy.experimental_distribute_dataset(dataset))


class EpochSource(DataSource):
    """`FitData`, which give any batch of any epoch."""

    def replay(self, history: IteratorsMade, epochs: int) -> None:
        """Nothing depends on the epochs before."""

    def iterator_at(self, batch: int) -> Any:
        """Make an iterator at a batch of the epoch."""
        if self.fit.data is None:
            raise RuntimeError("This fit has no data set of its own")
        return self.iterate(self.fit.data.starting_at(batch))


class DatasetSource(DataSource):
    """A `tf.data.Dataset`, that of arrays too.

    Args:
        fit: The fit.
        inexact: See `DataSource`.
        state: How iterators of the data set differ.
    """

    def __init__(self, fit: Fit, *, inexact: str | None, state: DatasetState) -> None:
        super().__init__(fit, inexact=inexact)
        self._state = state

    def replay(self, history: IteratorsMade, epochs: int) -> None:
        """Make the iterators of the epochs before."""
        if self._state.must_be_read:
            super().replay(history, epochs)
            return
        dataset = source_of(self.epoch)
        before = [made for made in history.made if made is not history.current]
        for _ in before if self._state.is_counted else ():
            iter(dataset)
        # They count what they are read of.
        self.fit.count_from(
            self.fit.initial_epoch + sum(made.read_from is not None for made in before)
        )

    def iterator_at(self, batch: int) -> Any:
        """Make an iterator at a batch, leaving to `tf.data` how those before are passed over."""
        if not batch:
            return super().iterator_at(0)
        return self.iterate(source_of(self.epoch).skip(batch))


def _read(iterator: Any, batches: int | None) -> None:
    """Read and drop batches, all where `batches` is `None`."""
    read = 0
    while batches is None or read < batches:
        try:
            next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return
        read += 1
