"""Private state of optimizers: strategy, variables, step counters, averages of weights."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops


def flatten_optimizers(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and all optimizers inside it."""
    inner = [*getattr(optimizer, "_inner_optimizers", [])]  # MultiOptimizer
    if hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        inner.append(optimizer.inner_optimizer)
    return [optimizer, *(nested for part in inner for nested in flatten_optimizers(part))]


def set_strategy(optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy) -> None:
    """Set the strategy of an optimizer that was created outside the scope."""
    for nested in flatten_optimizers(optimizer):
        nested._distribution_strategy = strategy


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that an optimizer was built for; an empty list before it is built."""
    return list(getattr(optimizer, "_trainable_variables", []))


def steps_taken(optimizer: keras.optimizers.Optimizer) -> int:
    """Return the number of an optimizer's steps, also of steps that only accumulate gradients."""
    return max(int(nested._iterations.numpy()) for nested in flatten_optimizers(optimizer))


def averaging_optimizers(
    optimizer: keras.optimizers.Optimizer,
) -> list[keras.optimizers.Optimizer]:
    """Return all optimizers that keep averages of weights: the optimizer, or optimizers inside."""
    return [nested for nested in flatten_optimizers(optimizer) if getattr(nested, "use_ema", False)]


def averaged_variables(
    optimizer: keras.optimizers.Optimizer,
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Return each trained variable with its moving average, from optimizers with averages."""
    return [
        pair
        for nested in averaging_optimizers(optimizer)
        for pair in zip(
            trained_variables(nested),
            getattr(nested, "_model_variables_moving_average", []),
            strict=False,  # none before the optimizer is built
        )
    ]


def warm_up_average(optimizer: keras.optimizers.Optimizer) -> None:
    """Limit the momentum of an optimizer's average to (1 + t) / (10 + t) at its step t."""
    optimizer._update_model_variables_moving_average = _Averaging(optimizer)


def is_average_warmed_up(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether `warm_up_average` was called for the optimizer, or for an optimizer inside it."""
    return any(
        isinstance(nested._update_model_variables_moving_average, _Averaging)
        for nested in averaging_optimizers(optimizer)
    )


class _Averaging:
    """Keras's update of the averages, with a momentum that warms up.

    An object replaces the method of a single optimizer. A change of `ema_momentum` during an update
    would be a race between the threads of replicas.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, trainable_variables: Any) -> None:
        optimizer = self._optimizer
        step = ops.cast(optimizer.iterations, "float64")
        momentum = ops.minimum(
            ops.cast(optimizer.ema_momentum, "float64"), (1.0 + step) / (10.0 + step)
        )
        # As Keras does: the average begins with the weights after the first step.
        momentum = ops.where(ops.equal(step, 0.0), ops.zeros_like(momentum), momentum)
        averages = optimizer._model_variables_moving_average
        for variable, average in zip(trainable_variables, averages, strict=False):
            if average is not None:
                kept = ops.cast(momentum, variable.dtype)
                average.assign(kept * average + (1 - kept) * variable)
