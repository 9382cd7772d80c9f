"""Learning rate schedules: warm-up before any other schedule, and the lab's step decay."""

from typing import Any

import keras

from ..arguments import as_integer, is_real_within, positive_integer, real_number
from ..errors import UserError
from .lab_epochs import LAB_EPOCHS

__all__ = ["WarmUp", "lab_schedule"]


@keras.saving.register_keras_serializable(package="kdist")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up of the learning rate, followed by any schedule or a constant rate.

    With a large global batch, the first steps from random weights diverge at the scaled learning
    rate; a gradual warm-up avoids this (Goyal et al. 2017, "Accurate, Large Minibatch SGD",
    section 2.2).

    Args:
        schedule_or_rate: A Keras learning rate schedule, or a constant rate. It starts at its step
            0 when the warm-up ends, so its own length does not include the warm-up.
        steps: Steps of the warm-up; 0 for none.
        start: Learning rate at step 0.

    Raises:
        UserError: `steps` is not an integer of at least 0, or a rate is negative.

    Example:
        ```python
        decay = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=900)
        optimizer = keras.optimizers.SGD(kdist.schedules.WarmUp(decay, steps=100))
        ```
    """

    def __init__(self, schedule_or_rate: Any, *, steps: int, start: float = 0.0) -> None:
        super().__init__()
        count = as_integer(steps)
        if count is None or count < 0:
            raise UserError(f"steps has to be an integer of at least 0; received {steps!r}")
        rates = [start] if callable(schedule_or_rate) else [start, schedule_or_rate]
        if not all(is_real_within(rate, least=0) for rate in rates):
            raise UserError(
                "schedule_or_rate has to be a Keras schedule or a rate, and rates have to be at"
                f" least 0; received {schedule_or_rate!r}, start={start!r}"
            )
        self.schedule_or_rate = schedule_or_rate
        self.steps = count
        self.start = start

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at optimizer step `step`, counted from 0."""
        step = keras.ops.cast(step, "float32")
        rate = self._rate(keras.ops.maximum(step - self.steps, 0))
        if not self.steps:
            return rate
        done = keras.ops.minimum(step / self.steps, 1)
        return done * rate + (1 - done) * self.start

    def _rate(self, step: Any) -> Any:
        if callable(self.schedule_or_rate):
            return self.schedule_or_rate(step)
        return keras.ops.convert_to_tensor(self.schedule_or_rate, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return {
            "schedule_or_rate": keras.saving.serialize_keras_object(self.schedule_or_rate),
            "steps": self.steps,
            "start": self.start,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        """Make the schedule from the result of `get_config`."""
        inner = keras.saving.deserialize_keras_object(config["schedule_or_rate"])
        return cls(inner, steps=config["steps"], start=config["start"])


def lab_schedule(
    rate: float, *, steps_per_epoch: int, warmup_epochs: float = 0.0
) -> keras.optimizers.schedules.LearningRateSchedule:
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
