"""The steps and learning rates of an optimizer and of those inside it."""

import keras


def flatten_optimizers(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and those inside it."""
    inner = [*getattr(optimizer, "_inner_optimizers", [])]  # MultiOptimizer
    if hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        inner.append(optimizer.inner_optimizer)
    return [optimizer, *(one for part in inner for one in flatten_optimizers(part))]


def step_counters(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables by which an optimizer, and each inside it, counts its steps.

    Unlike `iterations`, they count the steps that only accumulate gradients, too, and can be
    assigned to: schedules are called with them.
    """
    return [one._iterations for one in flatten_optimizers(optimizer)]


def steps_taken(optimizer: keras.optimizers.Optimizer) -> int:
    """Return the number of an optimizer's steps, also of those that only accumulate gradients."""
    return max(int(counter.numpy()) for counter in step_counters(optimizer))


def has_schedule(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether a schedule sets the learning rate of the optimizer, or of one inside it."""
    schedule = keras.optimizers.schedules.LearningRateSchedule
    return any(
        isinstance(getattr(one, "_learning_rate", None), schedule)
        for one in flatten_optimizers(optimizer)
    )


def largest_rate(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the learning rate of an optimizer, the largest of several; `None` if it has none."""
    rates = []
    for one in flatten_optimizers(optimizer):
        try:
            rate = one.learning_rate
        except AttributeError:  # a `MultiOptimizer`, whose rates are those of the ones inside
            continue
        rates.append(float(rate.numpy() if hasattr(rate, "numpy") else rate))
    return max(rates, default=None)
