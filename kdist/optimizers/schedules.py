"""Schedules of `kdist train --schedule`; a new schedule needs its name and its case here."""

from typing import Any, Literal

from ..errors import UserError

# Keras is imported inside the functions, as the settings of `kdist train` need only the names.

ScheduleName = Literal["constant", "cosine", "linear", "exponential"]

_MOST_STEPS = 2**31 - 1  # Largest number of steps that TensorFlow accepts; no training has so many.


def make_schedule(
    name: ScheduleName,
    learning_rate: float,
    *,
    epochs: int,
    steps_per_epoch: int,
    warmup_epochs: float,
    decay_epochs: float | None,
    decay_rate: float,
) -> Any:
    """Return the learning rate schedule of a run, or `learning_rate` itself if it is constant.

    `learning_rate` is the full rate, scaled to the replicas. The rate rises from 0 over
    `warmup_epochs`, which may be a fraction and belong to `epochs`. `"exponential"` multiplies the
    rate by `decay_rate` every `decay_epochs`; `TrainConfig` requires a number for them.
    """
    import keras

    from .warm_up import WarmUp

    warmup_steps = round(warmup_epochs * steps_per_epoch)
    steps = epochs * steps_per_epoch - warmup_steps
    if steps <= 0:
        raise UserError(
            f"warmup_epochs={warmup_epochs:g} takes {warmup_steps} of the run's"
            f" {epochs * steps_per_epoch} steps, so none is left at the full learning rate: lower"
            " warmup_epochs, or raise epochs"
        )
    schedule: Any = learning_rate
    match name:
        case "cosine":
            schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        case "linear":
            schedule = keras.optimizers.schedules.PolynomialDecay(
                learning_rate, steps, end_learning_rate=0.0
            )
        case "exponential":
            schedule = keras.optimizers.schedules.ExponentialDecay(
                learning_rate,
                decay_steps=max(1, round(min((decay_epochs or 1) * steps_per_epoch, _MOST_STEPS))),
                decay_rate=decay_rate,
                staircase=True,
            )
    return WarmUp(schedule, steps=warmup_steps) if warmup_steps else schedule
