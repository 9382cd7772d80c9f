"""Metrics of several replicas: what they count, and their results within a step."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.variables import Variable

from ..active_batch import active_batch
from ..patching import Patch, subclasses
from ..whole_batch import has_whole_batch, on_whole_batch

_thread = threading.local()


@contextlib.contextmanager
def _inside(what: str) -> Iterator[None]:
    setattr(_thread, what, True)
    try:
        yield
    finally:
        setattr(_thread, what, False)


def _is_inside(what: str) -> bool:
    return getattr(_thread, what, False)


def is_updating_metric() -> bool:
    """Whether this thread is in a metric's `update_state`."""
    return _is_inside("update")


def _update_reduced(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """A number counts by this replica's share of the samples, not as one update of many."""
    batch = active_batch()
    if batch and sample_weight is None and not len(getattr(values, "shape", ())):
        values = keras.ops.convert_to_tensor(values)
        if not values.dtype.is_floating:
            values = keras.ops.cast(values, metric.dtype)
        values = batch.zero_if_empty(batch.losses.rescale_or_warn(values))
        sample_weight = batch.fraction()
    return original(metric, values, sample_weight)


def _update_wrapper(
    original: Callable[..., Any], metric: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """On the global batch where a function gives one number that is no mean over the samples."""
    batch = active_batch()
    if batch is None or has_whole_batch() or isinstance(metric._fn, keras.losses.Loss):
        return original(metric, y_true, y_pred, sample_weight)
    values = keras.ops.convert_to_tensor(metric._fn(y_true, y_pred, **metric._fn_kwargs))
    if len(values.shape) or batch.losses.rescale_number(values) is not None:
        return original(metric, y_true, y_pred, sample_weight)

    def whole(y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        original(metric, y_true, y_pred, sample_weight)

    return on_whole_batch(batch, whole, y_true, y_pred, sample_weight)


def _assign_add(original: Callable[..., Any], variable: Any, value: Any) -> Any:
    """Adds to a metric's state, a sum over replicas, what counts once in the global batch."""
    batch = active_batch()
    is_summed = variable.aggregation == "sum" and is_updating_metric()
    if batch is not None and is_summed and not tf.executing_eagerly():
        converted = variable._convert_to_tensor(value, dtype=variable.dtype)
        value = batch.metrics.added(converted)
    return original(variable, value)


def _update_state(
    original: Callable[..., Any], metric: keras.metrics.Metric, *args: Any, **options: Any
) -> Any:
    """Counts no row of a replica without a sample, and once what every replica has."""
    batch = active_batch()
    if batch is None or _is_inside("update"):
        return original(metric, *args, **options)
    with _inside("update"):
        counted = batch.metrics.is_counted((args, options))
        if counted is True:
            return original(metric, *args, **options)
        before = [tf.identity(variable.value) for variable in metric.variables]
        outcome = original(metric, *args, **options)
    for variable, value in zip(metric.variables, before, strict=False):
        variable.assign(tf.where(counted, variable.value, value))
    return outcome


def _result(original: Callable[..., Any], metric: keras.metrics.Metric) -> Any:
    """Of all replicas, where a step computes with it or the states are no sums."""
    if _is_inside(f"result of {id(metric)}"):
        return original(metric)
    own = metric._variables  # those of metrics inside are theirs to merge
    values = _global_state(metric, own) if own else None
    state = list(zip(own, values, strict=True)) if values else []
    scope = keras.StatelessScope(state_mapping=state) if state else contextlib.nullcontext()
    with _inside(f"result of {id(metric)}"), scope:
        return keras.tree.map_structure(_not_distributed, original(metric))


def _not_distributed(result: Any) -> Any:
    """The value of a variable that a metric gives for its result, which would change later."""
    if not isinstance(result, keras.Variable):
        return result
    value = result.value
    is_plain = isinstance(value, tf.Variable) and not isinstance(
        value, tf.distribute.DistributedValues
    )
    return result if is_plain else tf.convert_to_tensor(value)


def _global_state(metric: Any, variables: list[keras.Variable]) -> list[Any] | None:
    batch = active_batch()
    merge = getattr(metric, "merge_replicas", None)
    if batch is not None and batch.has_global_results:
        return batch.metrics.all_reduce(variables, merge)
    context = tf.distribute.get_replica_context()
    on_a_replica = context is not None and context.num_replicas_in_sync > 1
    if on_a_replica or merge is None:
        return None
    copies = [_copies(variable) for variable in variables]
    if not all(copies):
        return None
    return [merge(v, tf.stack(parts)) for v, parts in zip(variables, copies, strict=True)]


def _copies(variable: keras.Variable) -> list[Any]:
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return []
    return [tf.convert_to_tensor(copy) for copy in value.values]


def _kinds(model: Any) -> Iterable[type]:
    """Every kind of metric, a user's too: a step may use one that the model does not know."""
    del model
    return subclasses(keras.metrics.Metric)


PATCHES = (
    *(
        Patch(
            owner=owner,
            name="update_state",
            replacement=_update_reduced,
            why="A number counts once on every replica, however many samples it is of.",
            canary="test_numbers_count_alike_however_many_samples_they_are_of",
        )
        for owner in (keras.metrics.Mean, keras.metrics.Sum)
    ),
    Patch(
        owner=keras.metrics.MeanMetricWrapper,
        name="update_state",
        replacement=_update_wrapper,
        why="Averages over replicas a function's number that is no mean over samples.",
        canary="test_losses_and_metrics_of_a_whole_batch_are_taken_for_means",
    ),
    Patch(
        owner=Variable,
        name="assign_add",
        replacement=_assign_add,
        why="A metric that adds 1 for a batch adds it on every replica.",
        canary="test_a_metric_counts_a_batch_once_on_every_replica",
    ),
    Patch(
        owner=keras.metrics.Metric,
        name="update_state",
        replacement=_update_state,
        why="Counts rows that every replica has, such as gathered ones, once for each replica.",
        canary="test_rows_that_all_replicas_have_are_counted_by_each",
        classes=_kinds,
    ),
    Patch(
        owner=keras.metrics.Metric,
        name="result",
        replacement=_result,
        why="Within a step, gives the result of one replica.",
        canary="test_a_metrics_result_within_a_step_is_one_replicas",
        classes=_kinds,
    ),
)
