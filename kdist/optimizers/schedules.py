"""The schedules of `kdist train --schedule`. To add one, add its name and its case here."""

from typing import TYPE_CHECKING, Any, Literal

from ..arguments import is_real_within, positive_integer, real_number
from ..errors import UserError

if TYPE_CHECKING:
    import keras

# Keras is imported inside the functions, as the settings of `kdist train` need the names alone.


ScheduleName = Literal["constant", "cosine", "linear", "exponential", "lab"]

LAB_EPOCHS = (15, 25, 35)
"""The epochs, counted from 0, at which the lab divides its learning rate by 10."""

_MOST = 2**31 - 1  # steps that TensorFlow takes; no training has as many


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
    """Make the learning rate schedule of a run, or return the rate itself if it is constant.

    Args:
        name: Which.
        learning_rate: The full rate, scaled to the replicas.
        epochs: Of the run, with the warm-up.
        steps_per_epoch: Optimizer steps per epoch.
        warmup_epochs: Epochs over which the rate rises from 0; may be a fraction.
        decay_epochs: Epochs after which `"exponential"` lowers the rate.
        decay_rate: Factor by which it does so.

    Raises:
        UserError: The warm-up leaves no step to train at the full rate.
    """
    import keras

    from .warm_up import WarmUp

    warmup_steps = round(warmup_epochs * steps_per_epoch)
    steps = epochs * steps_per_epoch - warmup_steps
    if steps <= 0:
        raise UserError(
            f"warmup_epochs={warmup_epochs:g} is {warmup_steps} of the run's"
            f" {epochs * steps_per_epoch} steps and leaves none to train at the full"
            " learning rate: lower it, or raise epochs"
        )
    schedule: Any = learning_rate
    match name:
        case "lab":
            return lab_schedule(
                learning_rate, steps_per_epoch=steps_per_epoch, warmup_epochs=warmup_epochs
            )
        case "cosine":
            schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        case "linear":
            schedule = keras.optimizers.schedules.PolynomialDecay(
                learning_rate, steps, end_learning_rate=0.0
            )
        case "exponential":
            schedule = keras.optimizers.schedules.ExponentialDecay(
                learning_rate,
                decay_steps=max(1, round(min((decay_epochs or 1) * steps_per_epoch, _MOST))),
                decay_rate=decay_rate,
                staircase=True,
            )
    return WarmUp(schedule, steps=warmup_steps) if warmup_steps else schedule


def lab_schedule(
    rate: float, *, steps_per_epoch: int, warmup_epochs: float = 0.0
) -> "keras.optimizers.schedules.LearningRateSchedule":
    """Make the course lab's schedule: divide the rate by 10 at epochs 15, 25 and 35.

    The lab uses one callback for this and another for the warm-up. This is one schedule for both;
    it depends only on the optimizer's step, so a resumed run continues it. Epochs are counted from
    0 and include the warm-up.

    Args:
        rate: The full learning rate, scaled to the replicas.
        steps_per_epoch: Optimizer steps per epoch.
        warmup_epochs: Epochs over which the rate rises from 0; may be a fraction.

    Raises:
        UserError: If a number is out of range.

    Example:
        ```python
        optimizer = keras.optimizers.SGD(lab_schedule(0.04, steps_per_epoch=469, warmup_epochs=5))
        ```
    """
    import keras

    from .warm_up import WarmUp

    full = real_number("rate", rate, hint="pass the full learning rate")
    if not is_real_within(full, least=0):
        raise UserError(f"rate is {rate!r}, but has to be 0 or more: pass the full learning rate")
    steps = positive_integer("steps_per_epoch", steps_per_epoch, hint="pass len(dataset)")
    if not is_real_within(warmup_epochs, least=0, below=LAB_EPOCHS[0]):
        raise UserError(
            f"warmup_epochs is {warmup_epochs!r}, but has to be 0 or more and below"
            f" {LAB_EPOCHS[0]}, where the rate first falls"
        )
    warmup = round(warmup_epochs * steps)
    staircase = keras.optimizers.schedules.PiecewiseConstantDecay(
        # In Keras, a value holds up to and including its boundary.
        [epoch * steps - warmup - 1 for epoch in LAB_EPOCHS],
        [full * 0.1**fall for fall in range(len(LAB_EPOCHS) + 1)],
    )
    return WarmUp(staircase, steps=warmup)
