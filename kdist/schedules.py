"""Learning-rate schedules: warm-up composed with any other schedule."""

from typing import Any

import keras

from .arguments import as_integer, is_real_within
from .errors import UserError


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
