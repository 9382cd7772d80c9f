"""Keras's optimizer on the only replica of a strategy."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from .own_copies import own_copies, with_inner
from .replacing import replace


@replace(BaseOptimizer, "apply")
def _apply(
    original: Callable[..., None], optimizer: Any, grads: Any, trainable_variables: Any = None
) -> None:
    """Without the strategy where the optimizer has conditions: none may hold a merge call.

    On several replicas the exact step sees to it.
    """
    context = tf.distribute.get_replica_context()
    alone = (
        optimizer.built
        and context is not None
        and context.strategy.num_replicas_in_sync == 1
        and hasattr(context.strategy, "prepare")
        and any(_has_conditions(one) for one in with_inner(optimizer))
    )
    if not alone:
        return original(optimizer, grads, trainable_variables)
    variables = trainable_variables or optimizer._trainable_variables
    with own_copies(optimizer, variables):
        return original(optimizer, grads, trainable_variables)


def _has_conditions(optimizer: Any) -> bool:
    return bool(optimizer.gradient_accumulation_steps or optimizer.ema_overwrite_frequency)
