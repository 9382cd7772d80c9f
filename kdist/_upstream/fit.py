"""`fit` passes the epoch to the data, and can begin at any batch of any epoch.

`running_fits.py` keeps the running fits. `start_fit_at` continues a fit; `resumed_data.py` then
skips the trained batches. `compile_options.py` has the steps per execution.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.callbacks import CallbackList
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer

from ..errors import TrainingError, UserError
from .compile_options import choose_steps_per_execution
from .hooks import StrategyHooks, check_optimizer, hooks_of, warn_of_model_outside_scope
from .iterators import release_in_background
from .models import has_call, overridden_steps
from .patching import replaces
from .resumed_data import DataSource, IteratorHistory, find_data_source, make_spare_iterator
from .running_fits import (
    Fit,
    find_global_batch,
    get_fit_data,
    innermost_fit,
    register_fit,
    replica_batch_spec,
    running_fit,
)
from .worker_devices import uses_collectives


def build_for_fit(model: keras.Model) -> None:
    """Build the layers and metrics of a model whose fit is about to begin.

    Without a strategy, Keras builds them in the first step. Nothing happens if the shapes of the
    data are unknown, if the model has no `call`, or if the model has its own `train_step`, which
    may build anything.
    """
    fit = running_fit(model)
    if fit is None or fit.iterator is None or not has_call(model):
        return
    if "train_step" in overridden_steps(model):
        return
    spec = replica_batch_spec(fit.iterator, any_batch_size=model.built)
    error = _try_to_build(model, spec)
    if error is not None:
        if not model.built:
            raise error
        _build_on_zeros(model, spec, find_global_batch(fit.iterator, None) or 1)


def _build_on_zeros(model: keras.Model, spec: Any, rows: int) -> None:
    """Build the metrics and the optimizer of a built model by an evaluation of rows of zeros."""

    def make_zeros(leaf: Any) -> Any:
        zeros = tf.zeros([rows, *leaf.shape[1:]], leaf.dtype)
        return tf.sparse.from_dense(zeros) if isinstance(leaf, tf.SparseTensorSpec) else zeros

    batch = keras.tree.map_structure(make_zeros, spec)
    model.test_on_batch(*keras.utils.unpack_x_y_sample_weight(batch))
    model.reset_metrics()
    with model.distribute_strategy.scope():
        model.optimizer.build(model.trainable_variables)


def _try_to_build(model: keras.Model, spec: Any) -> Exception | None:
    """Build layers, metrics and optimizer for batches with the spec; do nothing for `None`.

    Return the error of a model whose code needs values or the size of the batch. Errors of kdist
    are raised: if workers differ, all of them end their fits.
    """
    if spec is None:
        return None
    try:
        with model.distribute_strategy.scope():
            model._symbolic_build(data_batch=spec)
    except (UserError, TrainingError):
        raise
    except Exception as error:
        return error
    return None


def build_for_step(model: keras.Model, batch: Any) -> None:
    """Prepare a model under a strategy of kdist for a step on batches with the spec `batch`."""
    hooks = hooks_of(model)
    if hooks is not None:
        hooks.prepare(model)
    _build_early(model, batch)


def _build_early(model: keras.Model, batch: Any) -> None:
    """Let Keras build the metrics and the optimizer of a built model before its step.

    The step could build them, as without a strategy, but TensorFlow would then trace it twice.
    """
    if not model.built or not has_call(model) or overridden_steps(model) or model.run_eagerly:
        return
    _try_to_build(model, batch)  # A model that needs values fails here, but not in its step.


class _FirstEpoch(int):
    """An epoch's number that is true even if it is 0: Keras ignores a false number."""

    def __bool__(self) -> bool:
        return True


def start_fit_at(
    model: keras.Model, *, epoch: int, batch: int, data_ends: Mapping[int, int] | None = None
) -> str | None:
    """Let a `fit` that is about to begin start at a batch of an epoch.

    Callbacks and the progress bar get steps that begin at `batch`. The data are the same as in an
    uninterrupted fit. `data_ends` is the `Fit.data_ends` of the interrupted fit.

    - `kdist.data.training_batches`: any batch is computed directly.
    - Arrays, and a `tf.data.Dataset`: if the order depends on earlier iterators, these iterators
      are created again. Batches of the epoch before `batch` are skipped. Earlier epochs are read
      again if the data set keeps a part of the elements that were read, such as `cache` after
      `shuffle`.
    - `keras.utils.PyDataset`: the data begin at the batch's index; the hooks of the earlier epochs
      are called.
    - Generators, PyTorch's `DataLoader` and all remaining kinds are read from their beginning.

    Call this function in `on_train_begin`, and `_upstream.all_patches.install()` before `fit`. An
    epoch without a batch left ends immediately. Return a sentence that says why the data may differ
    from an uninterrupted fit, or `None`.
    """
    fit = running_fit(model)
    if fit is None or fit.iterator is None:
        raise RuntimeError(
            "no `fit` of this model is about to begin: call `start_fit_at` in `on_train_begin`,"
            " and `_upstream.all_patches.install()` before `fit`"
        )
    model._initial_epoch = _FirstEpoch(epoch)
    fit.start, fit.data_ends = (epoch, batch), dict(data_ends or {})
    return find_data_source(fit).inexact


def continue_first_epoch(fit: Fit, epoch: int, batch: int) -> Iterator[Any]:
    """Return the steps of a continued fit's first epoch, in the form of `EpochIterator`."""
    fit.start = None
    fit.model._initial_epoch = None  # the next fit begins at its own epoch
    history = _list_iterators(fit, epoch)
    source = find_data_source(fit)
    source.replay(history, epoch - fit.initial_epoch)
    fit.iterator._num_batches = history.num_batches
    before = history.current.batches or 0 if history.current is not None else 0
    return continue_epoch(fit.iterator, source, batch, before)


def pass_over_data(model: keras.Model, epoch: int) -> None:
    """Bring the data of a fit to their state after the epochs before `epoch`.

    The fit does not train on; a later fit on the same data continues from this state.
    """
    fit = running_fit(model)
    if fit is not None:
        history = _list_iterators(fit, epoch)
        history.current = None  # no epoch continues to read it
        find_data_source(fit).replay(history, epoch - fit.initial_epoch)


def _list_iterators(fit: Fit, epoch: int) -> IteratorHistory:
    """Return the iterators of the epochs before `epoch`."""
    return IteratorHistory(
        epoch - fit.initial_epoch,
        ends={at - fit.initial_epoch: batches for at, batches in fit.data_ends.items()},
        num_batches=fit.iterator._num_batches,
        steps_per_epoch=fit.iterator.steps_per_epoch,
        steps_per_execution=fit.iterator.steps_per_execution,
    )


def _is_divided_by_kdist(epoch_iterator: Any) -> bool:
    return isinstance(getattr(epoch_iterator, "_distribute_strategy", None), StrategyHooks)


def continue_epoch(
    epoch_iterator: Any, source: DataSource, first: int, before: int
) -> Iterator[Any]:
    """Yield the steps of `EpochIterator._enumerate_iterator`, beginning at step `first`.

    Earlier epochs have read the number of batches `before` from the same iterator.
    """
    batches, size = epoch_iterator._num_batches, epoch_iterator.steps_per_execution
    steps = epoch_iterator.steps_per_epoch or batches
    first = min(first, steps or first)
    source.begin_epoch(before + first)
    epoch_iterator.data_adapter.on_epoch_begin()
    iterator = source.iterator_at(before + first)
    if steps:
        epoch_iterator._current_iterator = iterator
        epoch_iterator._steps_seen = before + first
    if epoch_iterator.steps_per_epoch and batches and before + first >= batches:
        next(iterator, None)  # begins the iterator, for data that count their epochs
    for step in range(first, steps, size) if steps else itertools.count(first, size):
        if steps and batches and epoch_iterator._steps_seen >= batches:
            if epoch_iterator.steps_per_epoch:
                epoch_iterator._interrupted_warning()
            break
        epoch_iterator._steps_seen = (epoch_iterator._steps_seen if steps else step) + size
        yield step, step + size - 1, iterator
    if batches and epoch_iterator._steps_seen >= batches:
        if epoch_iterator.steps_per_epoch or not _is_divided_by_kdist(epoch_iterator):
            epoch_iterator._current_iterator = iter(epoch_iterator._get_iterator())
        else:  # no step was left
            make_spare_iterator(epoch_iterator)
        epoch_iterator._steps_seen = 0
    epoch_iterator.data_adapter.on_epoch_end()
    source.end_epoch()


@replaces(
    CallbackList,
    "on_train_begin",
    why="Calls History and the progress bar after callbacks that need their values, and tells no"
    " callback about the remaining callbacks.",
    test="test_history_is_called_after_a_users_callbacks",
)
def _begin_fit(original: Callable[..., Any], callbacks: Any, logs: Any = None) -> None:
    """Move observers after all callbacks, and pass the remaining callbacks to each observer."""
    observers = [callback for callback in callbacks.callbacks if _observes_fit(callback)]
    hooks = hooks_of(callbacks.model)
    if hooks is not None:
        # A worker that resumes alone would wait for the other workers while they train.
        names = ", ".join(type(observer).__name__ for observer in observers)
        hooks.compare_workers("the start of fit", {"the callback that resumes it": names or None})
    callbacks.callbacks.sort(key=_observes_fit)
    fit = innermost_fit()
    for observer in observers:
        if fit is not None:
            fit.observers.append(observer)
        observer.fit_begins(
            [callback for callback in callbacks.callbacks if callback is not observer]
        )
    original(callbacks, logs)


def _observes_fit(callback: Any) -> bool:
    """Whether a callback, such as `Checkpoint`, observes the fit: its callbacks and its end."""
    return hasattr(callback, "fit_begins")


_NO_EPOCH = "Does not pass the epoch to the data: their order depends on earlier iterators."


@replaces(
    TensorFlowTrainer,
    "fit",
    why=_NO_EPOCH,
    test="test_the_order_of_seeded_data_depends_on_the_iterators_made",
)
def _fit(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Train on a data set of this fit alone, if the data are `EpochBatches`."""
    try:
        call = inspect.signature(original).bind(model, *args, **options)
    except TypeError:  # Keras raises the error
        return original(model, *args, **options)
    warn_of_model_outside_scope(model)
    arguments = call.arguments
    with register_fit(model, arguments.get("initial_epoch", 0)) as fit:
        data = get_fit_data(arguments.get("x"))
        has_steps_per_epoch = arguments.get("steps_per_epoch") or keras.config.max_steps_per_epoch()
        if data is not None and not has_steps_per_epoch:
            arguments["x"] = fit.use_data(data)
        return original(*call.args, **call.kwargs)


@replaces(
    EpochIterator,
    "__init__",
    why="Starts every epoch at its first batch, and gives no access to the iterator.",
    test="test_the_iterator_over_the_training_data_is_out_of_reach",
)
def _record_iterator(
    original: Callable[..., Any], iterator: Any, *args: Any, **options: Any
) -> None:
    """Record the first iterator of a fit, which is the iterator of the training data."""
    fit = innermost_fit()
    if fit is not None and fit.iterator is None:
        fit.iterator = iterator
    original(iterator, *args, **options)


@replaces(
    EpochIterator,
    "catch_stop_iteration",
    why="Hides the epochs whose data ended early, although later iterators depend on these epochs.",
    test="test_data_that_end_limit_the_later_epochs",
)
@contextmanager
def _record_end(original: Callable[..., Any], iterator: Any) -> Iterator[None]:
    """Record that the training data ended within an epoch."""
    with original(iterator):
        try:
            yield
        except StopIteration:
            fit = innermost_fit()
            if fit is not None and fit.iterator is iterator:
                fit.data_ends[fit.epoch] = iterator._steps_seen
            raise


@replaces(
    CallbackList,
    "on_epoch_begin",
    why=_NO_EPOCH,
    test="test_the_order_of_seeded_data_depends_on_the_iterators_made",
)
def _begin_epoch(
    original: Callable[..., Any], callbacks: Any, epoch: int, logs: Any = None
) -> None:
    """Pass the number of the epoch to the data."""
    fit = innermost_fit()
    if fit is not None:
        fit.begin_epoch(epoch)
    original(callbacks, epoch, logs)


@replaces(
    EpochIterator,
    "_enumerate_iterator",
    why="Divides an iterator that no epoch uses, waits while the used iterator is freed, and does"
    " not say how many steps of an execution have a batch.",
    test="test_an_epoch_ends_with_a_spare_iterator",
)
def _steps_of_epoch(original: Callable[..., Any], epoch_iterator: Any) -> Iterator[Any]:
    """Begin within the data, and keep Keras from dividing an iterator that no epoch uses.

    On several replicas the division takes a tenth of a second, and starts to read ahead. The used
    iterator is freed in the background, so that Keras does not wait for its end.
    """
    fit = innermost_fit()
    if fit is not None and fit.iterator is epoch_iterator and fit.start is not None:
        steps = continue_first_epoch(fit, *fit.start)
    else:
        steps = original(epoch_iterator)
    is_divided = _is_divided_by_kdist(epoch_iterator)
    batches = epoch_iterator._num_batches
    for step in steps:
        if is_divided:
            release_in_background(step[-1])
        strategy = getattr(epoch_iterator, "_distribute_strategy", None)
        if batches and uses_collectives(strategy):
            # With several steps per execution, a step beyond the last batch would count as an
            # update.
            read = epoch_iterator._steps_seen - epoch_iterator.steps_per_execution
            step[-1]._kdist_batches_left = batches - read
        yield step
        is_over = batches and epoch_iterator._steps_seen >= batches
        if is_divided and is_over and epoch_iterator.steps_per_epoch is None:
            epoch_iterator._steps_seen = 0  # as Keras leaves it
            make_spare_iterator(epoch_iterator)


DATA_PATCHES = (
    _fit,
    _begin_epoch,
    _record_iterator,
    _record_end,
    _steps_of_epoch,
)


@replaces(
    TensorFlowTrainer,
    "_maybe_symbolic_build",
    why="Does not copy an optimizer created outside the scope to every replica, and loses"
    " the batches that a temporary iterator has prefetched.",
    test="test_a_generator_loses_batches_to_a_throw_away_iterator",
)
def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> Any:
    """Let the strategy prepare a model before Keras builds its optimizer and functions."""
    hooks = hooks_of(model)
    if hooks is None:
        check_optimizer(model)
        return original(model, iterator, data_batch)
    if iterator is None and hooks.is_prepared(model):
        return None
    global_batch = find_global_batch(iterator, data_batch)
    hooks.prepare(model, global_batch)
    if iterator is not None:
        choose_steps_per_execution(hooks, model, iterator, global_batch)
    _build_early(model, data_batch or replica_batch_spec(iterator, any_batch_size=True))
    return None


@replaces(
    Trainer,
    "_get_metrics_result_or_logs",
    why="Has no logs of an epoch that is resumed at its end.",
    test="test_the_logs_of_an_epoch_are_those_of_its_metrics",
)
def _get_epoch_logs(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Return the logs of an epoch that was resumed at its end."""
    fit = running_fit(model)
    if fit is None:
        return original(model, logs)
    resumed, fit.resumed_logs = fit.resumed_logs, None
    return original(model, logs or resumed or logs)


PATCHES = (_prepare, _get_epoch_logs, _begin_fit)
