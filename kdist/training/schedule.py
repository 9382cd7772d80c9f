"""The learning rate schedule of a run."""

from typing import Any

from ..errors import UserError
from .config import TrainConfig

_MOST = 2**31 - 1  # steps that TensorFlow takes; no training has as many


def run_schedule(config: TrainConfig, learning_rate: float, *, steps_per_epoch: int) -> Any:
    """Make the learning rate schedule of a run, or return the rate itself if it is constant."""
    import keras

    from ..schedules.warm_up import WarmUp, lab_schedule

    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if warmup_steps >= config.epochs * steps_per_epoch:
        raise UserError(
            f"warmup_epochs={config.warmup_epochs:g} is {warmup_steps} of the run's"
            f" {config.epochs * steps_per_epoch} steps and leaves none to train at the full"
            " learning rate: lower it, or raise epochs"
        )
    if config.schedule == "lab":
        return lab_schedule(
            learning_rate, steps_per_epoch=steps_per_epoch, warmup_epochs=config.warmup_epochs
        )
    schedule: Any = learning_rate
    steps = config.epochs * steps_per_epoch - warmup_steps
    if config.schedule == "cosine":
        schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    elif config.schedule == "linear":
        schedule = keras.optimizers.schedules.PolynomialDecay(
            learning_rate, steps, end_learning_rate=0.0
        )
    elif config.schedule == "exponential":
        schedule = keras.optimizers.schedules.ExponentialDecay(
            learning_rate,
            decay_steps=max(1, round(min((config.decay_epochs or 1) * steps_per_epoch, _MOST))),
            decay_rate=config.decay_rate,
            staircase=True,
        )
    return WarmUp(schedule, steps=warmup_steps) if warmup_steps else schedule
