"""Patch `GradientTape.gradient` and `Optimizer.apply` for custom training steps.

As in the exact step, a replica's gradients are summands of the global batch's gradients: the tape
weights the targets by samples, and the optimizer sums the gradients over replicas.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from ...errors import UserError
from ..active_batch import ActiveBatch, active_batch, check_no_inner_graph
from ..hooks import hooks_of_copies, replica_hooks
from ..internals import distribute, is_in_branch_or_loop, set_strategy
from ..one_device import traced_strategy
from ..patching import TENSORFLOW, Patch, subclasses
from ..replica_local_variables import flatten_optimizers, replica_local_variables
from ..step_observer import step_observer

# Each replica is traced in its own thread.
_thread = threading.local()


def _custom_step_batch() -> ActiveBatch | None:
    """Return the active batch if the step is a custom one."""
    batch = active_batch()
    return batch if batch is not None and batch.is_custom_step else None


def _gradient(
    original: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
) -> Any:
    """Return the gradient of this replica's summand of a target of the global batch.

    A target with one value per sample is not changed: the tape sums over this replica's samples.
    """
    observer = step_observer()
    if observer is not None:
        observer.forward_ended(target)
    batch = _custom_step_batch()
    if batch is None or output_gradients is not None:
        return original(tape, target, sources, output_gradients, unconnected_gradients)
    targets, weights = [], []
    for leaf in keras.tree.flatten(target):
        for term, weight in batch.losses.weighted_terms(leaf):
            targets.append(term)
            weights.append(weight)
    gradients = original(tape, targets, sources, weights, unconnected_gradients)
    for source, gradient in zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=False):
        if isinstance(source, keras.Variable | tf.Variable):
            batch.mark(gradient, "SUM")
    return gradients


def _apply(
    original: Callable[..., None], optimizer: Any, grads: Any, trainable_variables: Any = None
) -> None:
    """Apply gradients, summed over replicas, to each replica's local copies of the variables.

    Also on a single replica if the optimizer uses `tf.cond`, or is called in one, which must not
    contain a merge call.
    An optimizer within another one gets what the outer one makes of the sums.
    """
    if getattr(_thread, "is_applying", False):
        return original(optimizer, grads, trainable_variables)
    if traced_strategy() is not None:
        return original(optimizer, grads, trainable_variables)
    if replica_hooks() is None:
        _check_loop(trainable_variables)
        return original(optimizer, grads, trainable_variables)
    batch = _custom_step_batch()
    if batch is None and not _needs_local_variables(optimizer):
        return original(optimizer, grads, trainable_variables)
    variables = list(trainable_variables or optimizer._trainable_variables)
    if batch is not None:
        grads = batch.gradients.sum_over_replicas(list(grads), variables)
        if not _is_distributed(optimizer):
            _build(optimizer, variables)
    _thread.is_applying = True
    try:
        with replica_local_variables(optimizer, variables):
            return original(optimizer, grads, variables)
    finally:
        _thread.is_applying = False


def _optimizer_classes(model: Any) -> Iterable[type]:
    """Return Keras's optimizers and the user's: some change the gradients in their `apply`."""
    del model
    return subclasses(BaseOptimizer)


def _check_loop(variables: Any) -> None:
    """Refuse a training loop of the user's that TensorFlow would refuse in words of its own.

    Raises:
        UserError: It updates the variables of several devices in a graph, where none can be read.
    """
    if tf.executing_eagerly():
        return
    if any(hooks_of_copies(variable) is not None for variable in variables or ()):
        raise UserError(
            "an optimizer is applied in a tf.function of your own, which runs on no replica of"
            " the model's strategy: make it the train_step of the model and call fit, which"
            " trains on all replicas, or call it by strategy.run"
        )


def _needs_local_variables(optimizer: Any) -> bool:
    """Whether there is only one replica, and the optimizer uses `tf.cond` or is called in one."""
    context = tf.distribute.get_replica_context()
    return (
        optimizer.built
        and context.num_replicas_in_sync == 1
        and (
            is_in_branch_or_loop()
            or any(
                one.gradient_accumulation_steps or one.ema_overwrite_frequency
                for one in flatten_optimizers(optimizer)
            )
        )
    )


def _is_distributed(optimizer: Any) -> bool:
    """Whether the optimizer is built, and every replica has copies of its variables."""
    values = [variable._value for variable in optimizer.variables]
    copied = all(isinstance(value, tf.distribute.DistributedValues) for value in values)
    return bool(optimizer.built and copied)


def _build(optimizer: Any, variables: list[Any]) -> None:
    """Make the optimizer's variables on every replica, when the first step is traced."""
    check_no_inner_graph("optimizer.build")

    def build(strategy: tf.distribute.Strategy) -> None:
        set_strategy(optimizer, strategy)
        with tf.init_scope(), strategy.scope():
            if not optimizer.built:
                optimizer.build(variables)
            distribute(optimizer.variables, strategy)

    tf.distribute.get_replica_context().merge_call(build)


OF_ALL = (
    Patch(
        owner=tf.GradientTape,
        name="gradient",
        replacement=_gradient,
        why="In a custom step, takes the gradient of each replica's mean, and weights all replicas"
        " equally, whatever their number of samples.",
        canary="test_a_custom_step_weights_uneven_batches_evenly",
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=BaseOptimizer,
        name="apply",
        replacement=_apply,
        why="Crashes with gradient accumulation and with `ema_overwrite_frequency`, and clips"
        " gradients before they are summed over replicas.",
        canary="test_the_optimizer_crashes_on_conditions",
        issue="keras#20582",
    ),
)

PATCHES = (
    Patch(
        owner=keras.optimizers.LossScaleOptimizer,
        name="apply",
        replacement=_apply,
        why="Asks only the first replica whether gradients are finite. The same for optimizers of"
        " the user's that change gradients in `apply`.",
        canary="test_loss_scaling_looks_at_the_gradients_of_one_replica",
        classes=_optimizer_classes,
    ),
)
