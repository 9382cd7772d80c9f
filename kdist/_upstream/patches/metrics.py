"""Patch metrics for several replicas: their updates, and their results within a step."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.variables import Variable

from ..active_batch import active_batch
from ..gathered_batch import compute_on_gathered_batch, is_on_gathered_batch
from ..patching import Patch, subclasses
from ..worker_devices import replica_values

_thread = threading.local()


@contextlib.contextmanager
def _inside(name: str) -> Iterator[None]:
    setattr(_thread, name, True)
    try:
        yield
    finally:
        setattr(_thread, name, False)


def _is_inside(name: str) -> bool:
    return getattr(_thread, name, False)


def is_updating_metric() -> bool:
    """Whether the current thread is in a metric's `update_state`."""
    return _is_inside("update")


def _update_reduced(
    original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """Weight a scalar by this replica's fraction of the samples."""
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
    """Compute a metric function on the global batch if its result is not a mean over samples."""
    batch = active_batch()
    if batch is None or is_on_gathered_batch() or isinstance(metric._fn, keras.losses.Loss):
        return original(metric, y_true, y_pred, sample_weight)
    leaves = keras.tree.flatten((y_true, y_pred))
    pairs = [leaf for leaf in leaves if batch.kind(leaf) == "PAIRS"]
    for leaf in pairs:
        batch.losses.warn(leaf)
    if pairs:
        return original(metric, y_true, y_pred, sample_weight)
    for leaf in leaves:
        batch.mark_rows(leaf)
    values = keras.ops.convert_to_tensor(metric._fn(y_true, y_pred, **metric._fn_kwargs))
    if len(values.shape):
        is_exact = not batch.mixes_samples(values)
    else:
        is_exact = batch.losses.rescale_number(values) is not None
    if is_exact:
        return original(metric, y_true, y_pred, sample_weight)

    def update(y_true: Any, y_pred: Any, sample_weight: Any) -> None:
        original(metric, y_true, y_pred, sample_weight)

    return compute_on_gathered_batch(batch, update, y_true, y_pred, sample_weight)


def _assign_add(original: Callable[..., Any], variable: Any, value: Any) -> Any:
    """Add this replica's summand to a metric's state, which is summed over replicas."""
    batch = active_batch()
    is_summed = variable.aggregation == "sum" and is_updating_metric()
    if batch is not None and is_summed and not tf.executing_eagerly():
        converted = variable._convert_to_tensor(value, dtype=variable.dtype)
        value = batch.metrics.summand(converted)
    return original(variable, value)


def _update_state(
    original: Callable[..., Any], metric: keras.metrics.Metric, *args: Any, **options: Any
) -> Any:
    """Exclude replicas without samples, and count rows that all replicas have once."""
    batch = active_batch()
    if batch is None or _is_inside("update"):
        return original(metric, *args, **options)
    with _inside("update"):
        counted = batch.metrics.is_counted((args, options))
        if counted is True:
            return original(metric, *args, **options)
        before = [tf.identity(variable.value) for variable in metric.variables]
        result = original(metric, *args, **options)
    for variable, value in zip(metric.variables, before, strict=False):
        variable.assign(tf.where(counted, variable.value, value))
    return result


def _result(original: Callable[..., Any], metric: keras.metrics.Metric) -> Any:
    """Return the result over all replicas if a step uses it, or if the states are not sums."""
    if _is_inside(f"result of {id(metric)}"):
        return original(metric)
    variables = metric._variables  # nested metrics merge their own
    values = _global_state(metric, variables) if variables else None
    state = list(zip(variables, values, strict=True)) if values else []
    scope = keras.StatelessScope(state_mapping=state) if state else contextlib.nullcontext()
    with _inside(f"result of {id(metric)}"), scope:
        return keras.tree.map_structure(_not_distributed, original(metric))


def _not_distributed(result: Any) -> Any:
    """Return the value of a result that is a distributed variable, which would change later."""
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
        return batch.metrics.all_reduce([(variable, merge) for variable in variables])
    context = tf.distribute.get_replica_context()
    on_a_replica = context is not None and context.num_replicas_in_sync > 1
    if on_a_replica or merge is None:
        return None
    if not all(isinstance(v.value, tf.distribute.DistributedValues) for v in variables):
        return None
    return [merge(v, _replica_values(v.value)) for v in variables]


def _replica_values(value: Any) -> Any:
    strategy = value.distribute_strategy
    with contextlib.nullcontext() if tf.distribute.has_strategy() else strategy.scope():
        return replica_values(strategy, value)


def _metric_classes(model: Any) -> Iterable[type]:
    """Return all subclasses of `Metric`, even if not in the model: a step may use any."""
    del model
    return subclasses(keras.metrics.Metric)


PATCHES = (
    *(
        Patch(
            owner=owner,
            name="update_state",
            replacement=_update_reduced,
            why="Weights the scalars of all replicas equally, whatever their number of samples.",
            canary="test_scalars_count_equally_whatever_their_number_of_samples",
        )
        for owner in (keras.metrics.Mean, keras.metrics.Sum)
    ),
    Patch(
        owner=keras.metrics.MeanMetricWrapper,
        name="update_state",
        replacement=_update_wrapper,
        why="Averages a metric function over replicas even if it is not a mean over samples.",
        canary="test_losses_and_metrics_that_are_not_means_are_averaged",
    ),
    Patch(
        owner=Variable,
        name="assign_add",
        replacement=_assign_add,
        why="A metric that adds 1 per batch does so on every replica.",
        canary="test_a_metric_counts_a_batch_once_on_every_replica",
    ),
    Patch(
        owner=keras.metrics.Metric,
        name="update_state",
        replacement=_update_state,
        why="Counts rows that all replicas have, such as gathered rows, once per replica.",
        canary="test_rows_that_all_replicas_have_are_counted_by_each",
        classes=_metric_classes,
    ),
    Patch(
        owner=keras.metrics.Metric,
        name="result",
        replacement=_result,
        why="Returns the result of a single replica within a step.",
        canary="test_a_metrics_result_within_a_step_is_one_replicas",
        classes=_metric_classes,
    ),
)
