"""What a user's own training step calls: the tape and the optimizer.

Inside such a step a replica's gradients are its summands of the global batch's, as in kdist's own
step: the tape weighs what they are taken of, and the optimizer sums them over replicas.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from ..active_batch import ActiveBatch, active_batch, check_no_inner_graph
from ..hooks import replica_hooks
from ..internals import distribute, set_strategy
from ..patching import TENSORFLOW, Patch
from ..replica_local_variables import flatten_optimizers, replica_local_variables


def _own_step_batch() -> ActiveBatch | None:
    """The batch of this thread's step where a user wrote it."""
    batch = active_batch()
    return batch if batch is not None and batch.is_own_step else None


def _gradient(
    original: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """Of a scalar, the gradient of this replica's summand of the global batch's.

    What has a value for each sample stays: its gradient is the sum over this replica's samples.
    """
    batch = _own_step_batch()
    if batch is None or output_gradients is not None:
        return original(tape, target, sources, output_gradients, unconnected_gradients)
    targets, weights = [], []
    for leaf in keras.tree.flatten(target):
        for part, weight in batch.losses.weighted_terms(leaf):
            targets.append(part)
            weights.append(weight)
    gradients = original(tape, targets, sources, weights, unconnected_gradients)
    for source, gradient in zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=False):
        if isinstance(source, keras.Variable | tf.Variable):
            batch.mark(gradient, "SUM")
    return gradients


def _apply(
    original: Callable[..., None], optimizer: Any, grads: Any, trainable_variables: Any = None
) -> None:
    """On each replica's own copy of the variables, with gradients summed over replicas.

    On the only replica of a strategy too, where the optimizer has conditions: none of them may
    hold a merge call.
    """
    if replica_hooks() is None:
        return original(optimizer, grads, trainable_variables)
    batch = _own_step_batch()
    if batch is None and not _is_alone(optimizer):
        return original(optimizer, grads, trainable_variables)
    variables = list(trainable_variables or optimizer._trainable_variables)
    if batch is not None:
        grads = batch.gradients.sum_over_replicas(list(grads), variables)
        if not _is_distributed(optimizer):
            _build(optimizer, variables)
    with replica_local_variables(optimizer, variables):
        return original(optimizer, grads, variables)


def _is_alone(optimizer: Any) -> bool:
    """Whether this is the only replica, and the optimizer has conditions."""
    context = tf.distribute.get_replica_context()
    return (
        optimizer.built
        and context.num_replicas_in_sync == 1
        and any(
            one.gradient_accumulation_steps or one.ema_overwrite_frequency
            for one in flatten_optimizers(optimizer)
        )
    )


def _is_distributed(optimizer: Any) -> bool:
    """Whether the optimizer has variables, and a copy of each on every replica."""
    values = [variable._value for variable in optimizer.variables]
    copied = all(isinstance(value, tf.distribute.DistributedValues) for value in values)
    return bool(optimizer.built and copied)


def _build(optimizer: Any, variables: list[Any]) -> None:
    """Makes the optimizer's variables on every replica, at the first step that is traced."""
    check_no_inner_graph("optimizer.build")

    def build(strategy: tf.distribute.Strategy) -> None:
        set_strategy(optimizer, strategy)
        with tf.init_scope(), strategy.scope():
            if not optimizer.built:
                optimizer.build(variables)
            distribute(optimizer.variables, strategy)

    tf.distribute.get_replica_context().merge_call(build)


PATCHES = (
    Patch(
        owner=tf.GradientTape,
        name="gradient",
        replacement=_gradient,
        why="In a user's own step, takes the gradient of a replica's mean, which counts alike"
        " however many samples it is of.",
        canary="test_an_own_step_weighs_uneven_batches_evenly",
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=BaseOptimizer,
        name="apply",
        replacement=_apply,
        why="Crashes where gradients are accumulated or averages overwrite the weights, and clips"
        " gradients before they are summed over replicas.",
        canary="test_the_optimizer_crashes_on_conditions",
        issue="keras#20582",
    ),
)
