"""A `keras.utils.PyDataset` as the data of a fit that begins amid an epoch."""

import copy
import itertools
import random
from typing import Any

import keras
from keras.src.utils.rng_utils import get_random_seed

from .data_sources import DataSource
from .fits import Fit
from .iterators_made import IteratorsMade


class PyDatasetSource(DataSource):
    """A `keras.utils.PyDataset`, of which no batch is computed that is not wanted."""

    def __init__(self, fit: Fit) -> None:
        whole, is_shuffled = fit.iterator.data_adapter.py_dataset, fit.iterator.data_adapter.shuffle
        self._whole, self._is_shuffled = whole, is_shuffled and whole.num_batches is not None
        is_unseeded = self._is_shuffled and get_random_seed() is None
        super().__init__(fit, inexact=_UNSEEDED if is_unseeded else _BY_INDEX)
        self._order_read_on: list[int] | None = None

    def replay(self, history: IteratorsMade, epochs: int) -> None:
        """Call the hooks of the epochs before, and shuffle as they did."""
        for epoch in range(epochs):
            self._whole.on_epoch_begin()
            for made in history.made:
                if made.read_from == epoch:
                    order = self._order()
                    self._order_read_on = order if made is history.current else None
            self._whole.on_epoch_end()

    def about_to_begin(self, batch: int) -> None:
        """Have the workers compute what is wanted."""
        enqueuer = self.adapter.enqueuer
        if enqueuer is None:
            return
        if self._whole.num_batches is None:
            enqueuer.indices = itertools.count(batch)
        else:
            enqueuer.py_dataset, enqueuer.shuffle = self._part_from(batch), False

    def iterator_at(self, batch: int) -> Any:
        """Make an iterator at a batch."""
        adapter, enqueuer = copy.copy(self.adapter), self.adapter.enqueuer
        if enqueuer is None:
            adapter.py_dataset, adapter.shuffle = self._part_from(batch), False
        else:
            adapter.py_dataset = enqueuer.py_dataset
        return self.iterate(adapter.get_tf_dataset())

    def has_ended(self) -> None:
        """Have the workers compute everything again."""
        enqueuer = self.adapter.enqueuer
        if enqueuer is not None:
            enqueuer.py_dataset, enqueuer.shuffle = self._whole, self.adapter.shuffle

    def _part_from(self, batch: int) -> "_Part":
        return _Part(self._whole, self._order_read_on or self._order(), batch)

    def _order(self) -> list[int] | None:
        """The batches in the order of an epoch, drawn as Keras does; `None` without end."""
        if self._whole.num_batches is None:
            return None
        order = list(range(self._whole.num_batches))
        if self._is_shuffled:
            random.shuffle(order)
        return order


class _Part(keras.utils.PyDataset):
    """Batches of another one, from a place in an order on."""

    def __init__(self, whole: keras.utils.PyDataset, order: list[int] | None, first: int) -> None:
        super().__init__(whole.workers, whole.use_multiprocessing, whole.max_queue_size)
        self._whole, self._first = whole, first
        self._left = None if order is None else order[first:]

    @property
    def num_batches(self) -> int | None:
        """Batches from there on; `None` without end."""
        return None if self._left is None else len(self._left)

    def __getitem__(self, index: int) -> Any:
        """The batch at a place from there on."""
        return self._whole[self._first + index if self._left is None else self._left[index]]


_UNSEEDED = (
    "This PyDataset is shuffled without a seed, so that its order is not that of the interrupted"
    " training: call keras.utils.set_random_seed before fit, or pass shuffle=False"
)
_BY_INDEX = (
    "The batches of this PyDataset are those of the interrupted training if they depend on nothing"
    " but their index and what its hooks of epochs do"
)
