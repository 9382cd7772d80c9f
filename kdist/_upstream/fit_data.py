"""Training data that give any batch of any epoch: what the hooks of `fit` ask them."""

import abc
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_NAME = "_kdist_fit_data"


class FitDataset(abc.ABC):
    """A data set for one `fit`, which says what each of its iterators is to give."""

    dataset: tf.data.Dataset

    @abc.abstractmethod
    def begin(self, epoch: int) -> None:
        """Have the iterators that are made from now on give this epoch, counted from 0."""

    @abc.abstractmethod
    def starting_at(self, batch: int) -> tf.data.Dataset:
        """The data set of the epoch that was begun, without the batches before this one."""

    @abc.abstractmethod
    def end(self) -> None:
        """The fit is over."""


class FitData(abc.ABC):
    """Data whose batches depend on epoch and place, and on nothing that was drawn before.

    Attributes:
        batch_size: Samples of a full batch.
    """

    batch_size: int

    @abc.abstractmethod
    def for_fit(self) -> FitDataset:
        """A data set for one fit, apart from every other iteration over the data."""

    @abc.abstractmethod
    def hold(self, epoch: int) -> None:
        """Have every iterator outside `for_fit` that begins from now on give this epoch."""

    @abc.abstractmethod
    def release(self) -> None:
        """Have the iterators that begin count the epochs again."""

    @abc.abstractmethod
    def count_from(self, epoch: int) -> None:
        """Have the next iterator that begins give this epoch, the one after it the next."""


def attach(dataset: tf.data.Dataset, data: FitData) -> None:
    """Say that a data set gives the batches of `data`."""
    setattr(dataset, _NAME, data)


def fit_data_of(dataset: Any) -> FitData | None:
    """What gives the batches of this very data set; `None` where it is another kind."""
    data: FitData | None = getattr(dataset, _NAME, None)
    return data


def walk(dataset: Any) -> Iterator[Any]:
    """A data set and all that it is made from, as far as TensorFlow tells."""
    yield dataset
    if isinstance(dataset, tf.data.Dataset):
        for source in dataset._inputs():
            yield from walk(source)
