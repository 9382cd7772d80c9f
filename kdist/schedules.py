"""Learning-rate schedules: warm-up composed with any other schedule, and the lab's staircase."""

from typing import Any

import keras

from .arguments import as_integer, is_real_within, positive_integer, real_number
from .errors import UserError
from .lab import LAB_EPOCHS


@keras.saving.register_keras_serializable(package="kdist")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rise linearly to a schedule's first value, then follow that schedule.

    A large global batch makes the first steps, taken with a scaled learning rate from random
    weights, diverge; a gradual warm-up avoids it (Goyal et al. 2017, "Accurate, Large Minibatch
    SGD", section 2.2).

    Args:
        schedule_or_rate: A Keras learning-rate schedule, or a constant rate. It is asked for step
            0 when the warm-up ends, so its own length does not include the warm-up.
        steps: Steps of the warm-up; 0 for none.
        start: Rate at step 0.

    Raises:
        UserError: `steps` below 0, or a negative rate.

    Example:
        ```python
        decay = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=900)
        optimizer = keras.optimizers.SGD(kdist.schedules.WarmUp(decay, steps=100))
        ```
    """

    def __init__(self, schedule_or_rate: Any, *, steps: int, start: float = 0.0) -> None:
        super().__init__()
        whole = as_integer(steps)
        if whole is None or whole < 0:
            raise UserError(f"steps is a whole number, 0 or more; received {steps!r}")
        rates = [start] if callable(schedule_or_rate) else [start, schedule_or_rate]
        if not all(is_real_within(rate, least=0) for rate in rates):
            raise UserError(
                "schedule_or_rate is a Keras schedule or a rate, and a rate is 0 or more; received"
                f" {schedule_or_rate!r}, start={start!r}"
            )
        self.schedule_or_rate = schedule_or_rate
        self.steps = whole
        self.start = start

    def __call__(self, step: Any) -> Any:
        """The rate at optimizer step `step`, counted from 0."""
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
        """The arguments, for saving."""
        return {
            "schedule_or_rate": keras.saving.serialize_keras_object(self.schedule_or_rate),
            "steps": self.steps,
            "start": self.start,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        """The schedule that `get_config` described."""
        inner = keras.saving.deserialize_keras_object(config["schedule_or_rate"])
        return cls(inner, steps=config["steps"], start=config["start"])


def lab_schedule(
    rate: float, *, steps_per_epoch: int, warmup_epochs: float = 0.0
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The course lab's staircase: a tenth of the rate from epoch 15, 25 and 35 on.

    The lab keeps it in a callback that sets the rate at the beginning of an epoch, beside another
    one that warms it up; this is one schedule for both, which a resumed run finds in the
    optimizer's step. Epochs count from 0, and the warm-up is a part of them.

    Args:
        rate: The full learning rate, scaled to the replicas.
        steps_per_epoch: Steps of the optimizer in an epoch.
        warmup_epochs: Epochs, or parts of one, over which the rate rises from 0.

    Raises:
        UserError: If a number is out of its range.

    Example:
        ```python
        optimizer = keras.optimizers.SGD(lab_schedule(0.04, steps_per_epoch=469, warmup_epochs=5))
        ```
    """
    full = real_number("rate", rate, mend="pass the full learning rate")
    if not is_real_within(full, least=0):
        raise UserError(f"rate is {rate!r}, but has to be 0 or more: pass the full learning rate")
    steps = positive_integer("steps_per_epoch", steps_per_epoch, mend="pass len(dataset)")
    if not is_real_within(warmup_epochs, least=0, below=LAB_EPOCHS[0]):
        raise UserError(
            f"warmup_epochs is {warmup_epochs!r}, but has to be 0 or more and below"
            f" {LAB_EPOCHS[0]}, where the rate first falls"
        )
    warmup = round(warmup_epochs * steps)
    staircase = keras.optimizers.schedules.PiecewiseConstantDecay(
        # Keras keeps a value up to and with its boundary.
        [epoch * steps - warmup - 1 for epoch in LAB_EPOCHS],
        [full * 0.1**fall for fall in range(len(LAB_EPOCHS) + 1)],
    )
    return WarmUp(staircase, steps=warmup)
