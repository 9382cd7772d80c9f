"""The fits that are under way: the epoch that each trains, and the data that it trains on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from .fit_data import FitData, FitDataset, fit_data_of, walk

_thread = threading.local()


class Fit:
    """A `model.fit` under way.

    Attributes:
        model: The model that is trained.
        initial_epoch: The argument of `fit`.
        data: The data set of its own that the fit trains on, where it was given `FitData`.
        iterator: Keras's `EpochIterator` over the training data.
        start: Epoch and batch that the fit is to begin at, until it has begun.
        counted: What counts its epochs itself, as one iterator gives several of them.
    """

    def __init__(self, model: keras.Model, initial_epoch: int) -> None:
        self.model, self.initial_epoch = model, initial_epoch
        self.data: FitDataset | None = None
        self.iterator: Any = None
        self.start: tuple[int, int] | None = None
        self.counted: list[FitData] = []
        self._held: list[FitData] = []
        self._has_begun = False

    def take(self, data: FitData) -> tf.data.Dataset:
        """Train on a data set that nothing else iterates over."""
        self.data = data.for_fit()
        self.data.begin(self.initial_epoch)
        self._held.append(data)
        return self.data.dataset

    def begin_epoch(self, epoch: int) -> None:
        """Say to the data which epoch is about to be trained."""
        if not self._has_begun:
            self._find_data()
        if self.data is not None:
            self.data.begin(epoch)
        for data in self._held:
            data.hold(epoch)
        if not self._has_begun:
            self.count_from(epoch)
        self._has_begun = True

    def count_from(self, epoch: int) -> None:
        """Have what counts its epochs give this one next."""
        for data in self.counted:
            data.count_from(epoch)

    def _find_data(self) -> None:
        """Find the `FitData` that the training data are made from."""
        parts = list(walk(source_of(self.iterator)))
        found = [data for part in parts if (data := fit_data_of(part)) is not None]
        others = [data for data in found if data not in self._held]
        is_repeated = any("Repeat" in type(part).__name__ for part in parts)
        if is_repeated or self.iterator.steps_per_epoch:
            # One iterator gives several epochs, and begins them ahead of time.
            self.counted += others
        else:
            self._held += others

    def end(self) -> None:
        """Let go of the data."""
        if self.start is not None:  # no epoch was left to train
            self.model._initial_epoch = None
        if self.data is not None:
            self.data.end()
        for data in self._held:
            data.release()


@contextmanager
def fit_of(model: keras.Model, initial_epoch: int) -> Iterator[Fit]:
    """Keep a fit of this thread in mind while it is under way."""
    fit = Fit(model, initial_epoch)
    _fits().append(fit)
    try:
        yield fit
    finally:
        _fits().remove(fit)
        fit.end()


def innermost_fit() -> Fit | None:
    """The fit that this thread is in."""
    return _fits()[-1] if _fits() else None


def running_fit(model: keras.Model) -> Fit | None:
    """The fit of this model that this thread is in."""
    return next((fit for fit in reversed(_fits()) if fit.model is model), None)


def source_of(iterator: Any) -> Any:
    """The data set that Keras's `EpochIterator` iterates over, before replicas divide it."""
    dataset = iterator._distributed_dataset
    return getattr(dataset, "_original_dataset", dataset)


def _fits() -> list[Fit]:
    fits: list[Fit] = vars(_thread).setdefault("fits", [])
    return fits
