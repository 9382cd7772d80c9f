"""Warm-up of the learning rate, followed by any schedule, and of the moving average of weights."""

from typing import Any

import keras

from .._upstream.optimizers import averaging_optimizers, warm_up_average
from ..arguments import as_integer, number_within
from ..errors import UserError


@keras.saving.register_keras_serializable(package="kdist")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up of the learning rate, followed by any schedule or a constant rate.

    With a large global batch, the first steps from random weights diverge at the scaled learning
    rate; a gradual warm-up avoids this (Goyal et al. 2017, "Accurate, Large Minibatch SGD",
    section 2.2).

    Args:
        schedule_or_rate: A Keras learning rate schedule, or a constant rate. The schedule starts at
            its step 0 when the warm-up ends, so its length does not include the warm-up.
        steps: Number of steps over which the rate rises from 0; 0 for no warm-up.

    Raises:
        UserError: `steps` is not an integer of at least 0, or the rate is negative.

    Examples:
        ```python
        decay = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=900)
        optimizer = keras.optimizers.SGD(kdist.optimizers.WarmUp(decay, steps=100))
        ```
    """

    def __init__(self, schedule_or_rate: Any, *, steps: int) -> None:
        super().__init__()
        count = as_integer(steps)
        if count is None or count < 0:
            raise UserError(
                f"steps is {steps!r}, but has to be an integer of at least 0: pass the number of"
                " steps of the warm-up, or 0 for no warm-up"
            )
        if not callable(schedule_or_rate):
            hint = "pass a learning rate or a Keras schedule"
            number_within("schedule_or_rate", schedule_or_rate, hint=hint)
        self.schedule_or_rate = schedule_or_rate
        self.steps = count

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at optimizer step `step`, counted from 0."""
        step = keras.ops.cast(step, "float32")
        rate = self._rate(keras.ops.maximum(step - self.steps, 0))
        return keras.ops.minimum(step / self.steps, 1) * rate if self.steps else rate

    def _rate(self, step: Any) -> Any:
        if callable(self.schedule_or_rate):
            return self.schedule_or_rate(step)
        return keras.ops.convert_to_tensor(self.schedule_or_rate, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return {
            "schedule_or_rate": keras.saving.serialize_keras_object(self.schedule_or_rate),
            "steps": self.steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        """Restore the schedule from the result of `get_config`."""
        inner = keras.saving.deserialize_keras_object(config["schedule_or_rate"])
        return cls(inner, steps=config["steps"])


def warm_up_ema(optimizer: Any) -> Any:
    """Start the moving average of weights with a small momentum that rises to `ema_momentum`.

    At step t, counted from 0, the momentum is `min(ema_momentum, (1 + t) / (10 + t))`. The average
    starts as the weights after the first step, as in Keras. Without the warm-up, and with momentum
    0.9999, these weights still make up 96 % of the average after 440 steps, and the average is
    useless for the first few thousand steps.

    Keras keeps the average: `keras.callbacks.SwapEMAWeights` evaluates the average, and `fit`
    copies the average to the weights at the end. The average is the same on any number of replicas,
    and `Checkpoint` saves it. A `.keras` file does not record the warm-up: call `warm_up_ema` again
    for the optimizer of a loaded model before further training. Past step `9 / (1 - ema_momentum)`
    the warm-up makes no difference.

    Args:
        optimizer: An optimizer with `use_ema=True`, or an optimizer that wraps or combines
            optimizers with `use_ema=True`, before its first step.

    Returns:
        The same optimizer.

    Raises:
        UserError: The optimizer keeps no average.

    Examples:
        ```python
        sgd = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9999)
        model.compile(kdist.optimizers.warm_up_ema(sgd), "sparse_categorical_crossentropy")
        model.fit(train, validation_data=test, callbacks=[keras.callbacks.SwapEMAWeights()])
        ```

    Source: `num_updates` of TensorFlow's `tf.train.ExponentialMovingAverage`.
    """
    averaging = averaging_optimizers(optimizer)
    if not averaging:
        raise UserError(
            f"warm_up_ema received the optimizer {type(optimizer).__name__}, which keeps no average"
            " of weights: create the optimizer with use_ema=True and, for example,"
            " ema_momentum=0.9999"
        )
    for inner in averaging:
        warm_up_average(inner)
    return optimizer
