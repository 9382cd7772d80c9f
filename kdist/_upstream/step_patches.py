"""What a user's own training step calls: the tape, the optimizer, losses and metrics.

Inside such a step a replica's gradients are its summands of the global batch's, as in kdist's own
step: the tape weighs what they are taken of, and the optimizer sums them over replicas.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from .active_batch import ActiveBatch, active_batch
from .names import distribute, set_strategy
from .own_copies import own_copies, with_inner
from .replacing import replace, subclasses


def own_step_batch() -> ActiveBatch | None:
    """The batch of this thread's step where a user wrote it."""
    batch = active_batch()
    return batch if batch is not None and batch.is_own_step else None


@replace(tf.GradientTape, "gradient")
def _gradient(
    original: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """Of a scalar, the gradient of this replica's summand of the global batch's.

    What has a value a sample stays: its gradient is the sum over this replica's samples.
    """
    batch = own_step_batch()
    if batch is None or output_gradients is not None:
        return original(tape, target, sources, output_gradients, unconnected_gradients)
    targets, weights = [], []
    for leaf in keras.tree.flatten(target):
        for part, weight in batch.weighted_terms(leaf):
            targets.append(part)
            weights.append(weight)
    gradients = original(tape, targets, sources, weights, unconnected_gradients)
    for source, gradient in zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=False):
        if isinstance(source, keras.Variable | tf.Variable):
            batch.mark(gradient, "SUM")
    return gradients


@replace(BaseOptimizer, "apply")
def _apply(
    original: Callable[..., None], optimizer: Any, grads: Any, trainable_variables: Any = None
) -> None:
    """On each replica's own copy of the variables, with gradients summed over replicas.

    On the only replica of a strategy too, where the optimizer has conditions: none of them may
    hold a merge call.
    """
    context = tf.distribute.get_replica_context()
    strategy = None if context is None else context.strategy
    if strategy is None or not hasattr(strategy, "prepare"):
        return original(optimizer, grads, trainable_variables)
    batch = own_step_batch()
    if batch is None and not _is_alone(optimizer, strategy):
        return original(optimizer, grads, trainable_variables)
    variables = list(trainable_variables or optimizer._trainable_variables)
    if batch is not None:
        grads = batch.global_gradients(list(grads), variables)
        if not _is_distributed(optimizer):
            _build(optimizer, variables)
    with own_copies(optimizer, variables):
        return original(optimizer, grads, variables)


def _is_alone(optimizer: Any, strategy: tf.distribute.Strategy) -> bool:
    """Whether this is the only replica, and the optimizer has conditions."""
    return (
        optimizer.built
        and strategy.num_replicas_in_sync == 1
        and any(
            one.gradient_accumulation_steps or one.ema_overwrite_frequency
            for one in with_inner(optimizer)
        )
    )


def _is_distributed(optimizer: Any) -> bool:
    """Whether the optimizer has variables, and a copy of each on every replica."""
    values = [variable._value for variable in optimizer.variables]
    copied = all(isinstance(value, tf.distribute.DistributedValues) for value in values)
    return bool(optimizer.built and copied)


def _build(optimizer: Any, variables: list[Any]) -> None:
    """Makes the optimizer's variables on every replica, at the first step that is traced."""

    def build(strategy: tf.distribute.Strategy) -> None:
        set_strategy(optimizer, strategy)
        with tf.init_scope(), strategy.scope():
            if not optimizer.built:
                optimizer.build(variables)
            distribute(optimizer.variables, strategy)

    tf.distribute.get_replica_context().merge_call(build)


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


def _update_state(
    original: Callable[..., Any], metric: keras.metrics.Metric, *args: Any, **options: Any
) -> Any:
    """Counts no row of a replica without a sample, and once what every replica has."""
    batch = active_batch()
    if batch is None or _is_inside("update"):
        return original(metric, *args, **options)
    with _inside("update"):
        counted = batch.is_counted((args, options))
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
        return batch.all_reduce_state(variables, merge)
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


def watch_metrics() -> None:
    """Replace what every kind of metric does to update itself and to tell its result."""
    for kind in subclasses(keras.metrics.Metric):
        for name, replacement in (("update_state", _update_state), ("result", _result)):
            if name in vars(kind):
                replace(kind, name)(replacement)
