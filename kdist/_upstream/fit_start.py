"""Begin a fit amid its data: the first epoch that a resumed fit trains."""

import itertools
from collections.abc import Iterator
from typing import Any

import keras

from .choose_data_source import data_source_of
from .data_sources import DataSource
from .fits import Fit, running_fit
from .hooks import StrategyHooks
from .iterators_made import IteratorsMade


class _FirstEpoch(int):
    """An epoch's number that is true also where it is 0, which Keras takes for none."""

    def __bool__(self) -> bool:
        return True


def start_fit_at(model: keras.Model, *, epoch: int, batch: int) -> str | None:
    """Have a fit under way begin at a batch of an epoch; see `kdist.checkpoints.data_position`."""
    fit = running_fit(model)
    if fit is None or fit.iterator is None:
        raise RuntimeError(
            "There is no fit of this model to be started elsewhere: call this in `on_train_begin`,"
            " and `_upstream.patches.install()` before `fit`"
        )
    model._initial_epoch = _FirstEpoch(epoch)
    fit.start = epoch, batch
    return data_source_of(fit).inexact


def first_epoch_of(fit: Fit, epoch: int, batch: int) -> Iterator[Any]:
    """The steps of the epoch that a fit begins with, as `EpochIterator` gives them to Keras."""
    fit.start = None
    fit.model._initial_epoch = None  # the next fit is its own
    history = _iterators_before(fit, epoch)
    source = data_source_of(fit)
    source.replay(history, epoch - fit.initial_epoch)
    before = history.current.batches or 0 if history.current is not None else 0
    return _steps(fit.iterator, source, batch, before)


def pass_over_data(model: keras.Model, epoch: int) -> None:
    """Leave the data of a fit that trains no more as its epochs before `epoch` have left them.

    A later fit on the same data begins there.
    """
    fit = running_fit(model)
    if fit is not None:
        history = _iterators_before(fit, epoch)
        history.current = None  # nothing reads on
        data_source_of(fit).replay(history, epoch - fit.initial_epoch)


def _iterators_before(fit: Fit, epoch: int) -> IteratorsMade:
    keras_iterator = fit.iterator
    return IteratorsMade(
        epoch - fit.initial_epoch,
        batches=keras_iterator._num_batches,
        steps_per_epoch=keras_iterator.steps_per_epoch,
        steps_per_execution=keras_iterator.steps_per_execution,
        spares=makes_spares(keras_iterator),
    )


def makes_spares(keras_iterator: Any) -> bool:
    """Whether Keras makes an iterator at the end of an epoch that the next one does not use."""
    return not isinstance(getattr(keras_iterator, "_distribute_strategy", None), StrategyHooks)


def _steps(epoch: Any, source: DataSource, first: int, before: int) -> Iterator[Any]:
    """`EpochIterator._enumerate_iterator`, from a step on.

    Args:
        epoch: The `EpochIterator`.
        source: Its data.
        first: The step to begin at.
        before: Batches that earlier epochs have read from the same iterator.
    """
    size, steps = epoch.steps_per_execution, epoch.steps_per_epoch or epoch._num_batches
    first = min(first, steps or first)
    source.about_to_begin(before + first)
    epoch.data_adapter.on_epoch_begin()
    iterator = source.iterator_at(before + first)
    if steps:
        epoch._current_iterator, epoch._steps_seen = iterator, before + first
    if epoch.steps_per_epoch and epoch._num_batches and before + first >= epoch._num_batches:
        next(iterator, None)  # begins it, which data that count their epochs have to see
    for step in range(first, steps, size) if steps else itertools.count(first, size):
        if steps and epoch._num_batches and epoch._steps_seen >= epoch._num_batches:
            if epoch.steps_per_epoch:
                epoch._interrupted_warning()
            break
        epoch._steps_seen = (epoch._steps_seen if steps else step) + size
        yield step, step + size - 1, iterator
    is_over = epoch._num_batches and epoch._steps_seen >= epoch._num_batches
    if is_over and (epoch.steps_per_epoch or makes_spares(epoch)):
        epoch._current_iterator, epoch._steps_seen = iter(epoch._get_iterator()), 0
    epoch.data_adapter.on_epoch_end()
    source.has_ended()
