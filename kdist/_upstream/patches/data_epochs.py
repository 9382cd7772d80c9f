"""Which epoch a fit trains, where its data begin, and how Keras makes its iterators."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.callbacks import CallbackList
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.epoch_iterator import EpochIterator

from ..fit_data import fit_data_of
from ..fit_start import first_epoch_of, makes_spares
from ..fits import fit_of, innermost_fit
from ..iterators import release_in_background
from ..patching import Patch
from ..worker_devices import uses_collectives
from .fit_observers import observed_fit


def _fit(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Gives data that know their epochs a data set of the fit's own."""
    try:
        call = inspect.signature(original).bind(model, *args, **options)
    except TypeError:  # Keras says what is wrong
        return original(model, *args, **options)
    asked = call.arguments
    with observed_fit(), fit_of(model, asked.get("initial_epoch", 0)) as fit:
        data = fit_data_of(asked.get("x"))
        is_continued = asked.get("steps_per_epoch") or keras.config.max_steps_per_epoch()
        if data is not None and not is_continued:
            asked["x"] = fit.take(data)
        return original(*call.args, **call.kwargs)


def _make(original: Callable[..., Any], iterator: Any, *args: Any, **options: Any) -> None:
    """Knows the first iterator of a fit for that of its training data."""
    fit = innermost_fit()
    if fit is not None and fit.iterator is None:
        fit.iterator = iterator
    original(iterator, *args, **options)


def _begin_epoch(
    original: Callable[..., Any], callbacks: Any, epoch: int, logs: Any = None
) -> None:
    """Tells the data the number of the epoch."""
    fit = innermost_fit()
    if fit is not None:
        fit.begin_epoch(epoch)
    original(callbacks, epoch, logs)


def _steps_of_epoch(original: Callable[..., Any], epoch: Any) -> Iterator[Any]:
    """Begins amid the data, and keeps Keras from making an iterator that no epoch uses.

    On several replicas such an iterator takes a tenth of a second, and starts to read ahead. Nor
    does Keras wait for the end of the one it has used.
    """
    fit = innermost_fit()
    if fit is not None and fit.iterator is epoch and fit.start is not None:
        steps = first_epoch_of(fit, *fit.start)
    else:
        steps = original(epoch)
    ours = not makes_spares(epoch)
    for step in steps:
        if ours:
            release_in_background(step[-1])
        if epoch._num_batches and uses_collectives(getattr(epoch, "_distribute_strategy", None)):
            # Of several steps per execution, one beyond the last would count as an update.
            read = epoch._steps_seen - epoch.steps_per_execution
            step[-1]._kdist_batches_left = epoch._num_batches - read
        yield step
        is_over = epoch._num_batches and epoch._steps_seen >= epoch._num_batches
        if ours and is_over and epoch.steps_per_epoch is None:
            epoch._steps_seen = 0  # as Keras leaves it


_NO_EPOCH = "Does not tell the data the epoch: their order depends on earlier iterators."

PATCHES = (
    Patch(
        owner=TensorFlowTrainer,
        name="fit",
        replacement=_fit,
        why=_NO_EPOCH,
        canary="test_the_order_of_seeded_data_depends_on_the_iterators_made",
    ),
    Patch(
        owner=CallbackList,
        name="on_epoch_begin",
        replacement=_begin_epoch,
        why=_NO_EPOCH,
        canary="test_the_order_of_seeded_data_depends_on_the_iterators_made",
    ),
    Patch(
        owner=EpochIterator,
        name="__init__",
        replacement=_make,
        why="Starts every epoch at its first batch, and gives no access to the iterator.",
        canary="test_the_iterator_over_the_training_data_is_out_of_reach",
    ),
    Patch(
        owner=EpochIterator,
        name="_enumerate_iterator",
        replacement=_steps_of_epoch,
        why="Makes an unused iterator at the end of an epoch, waits while the used one is freed,"
        " and does not say how many steps of an execution have a batch.",
        canary="test_an_epoch_ends_with_a_spare_iterator",
    ),
)
