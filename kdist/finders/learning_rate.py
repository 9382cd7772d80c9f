"""`find_learning_rate`: the learning rate range test."""

import math
from typing import Any

import keras

from ..arguments import positive_integer
from ..distribute.mirrored_strategy import MirroredStrategy
from .functions import Function, as_functions
from .rate_curve import LossAverage, RateCurve, check_range, rates_of
from .short_fit import build_model, fit_steps


def find_learning_rate(
    build: Function,
    data: Any,
    *,
    batch_size: int | None = None,
    replicas: int | None = None,
    least: float = 1e-6,
    most: float = 10.0,
    steps: int = 200,
    smoothing: float = 0.95,
    divergence: float = 4.0,
    seed: int | None = 0,
) -> RateCurve:
    """Train a new model with a rising learning rate, and say with which its loss falls best.

    The rate rises by the same factor at each step, from `least` to `most`. The test ends when the
    running average of the loss is `divergence` times as high as it once was. The losses are those
    of single batches, and the same on any number of replicas with the same global batch. The rate
    is for that global batch, see `kdist.scale_learning_rate`.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`. Its optimizer
            stays, only its learning rate or schedule is replaced.
        data: A function that returns `(x, y), (x_val, y_val)`, `(x, y), None`, a `tf.data.Dataset`
            or a `keras.utils.PyDataset`; with a parameter `batch_size`, it gets the global batch.
            Validation data are not used.
        batch_size: Samples per replica and step, by default 32. Data with batches of their own
            keep them.
        replicas: As for `kdist.MirroredStrategy`.
        least: The first learning rate.
        most: The last one.
        steps: Steps from `least` to `most`, at least 10.
        smoothing: Decay of the running average of the loss.
        divergence: When the test ends.
        seed: Of initial weights and of all draws, set by `keras.utils.set_random_seed`; `None`
            leaves them as they are.

    Returns:
        The curve, with its `suggestion`.

    Raises:
        UserError: An argument is out of range, or a function fails.

    Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3, who
    lets the rate rise linearly; by a factor and with a running average it is Gugger 2018, "How Do
    You Find A Good Learning Rate".

    Example:
        ```python
        curve = kdist.find_learning_rate("my_model.py:build", "data", batch_size=64)
        print(curve.suggestion, curve.is_sure)
        ```
    """
    batch = positive_integer("batch_size", batch_size or 32, hint="pass samples per replica")
    check_range(least=least, most=most, steps=steps)
    rates = rates_of(least, most, steps)
    average = LossAverage(smoothing=smoothing, divergence=divergence)
    functions = as_functions(build, data)
    strategy = MirroredStrategy(replicas=replicas)
    global_batch = batch * strategy.num_replicas_in_sync
    loaded = functions.load_data(global_batch)
    functions.check_batch(loaded, batch_size)
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = build_model(functions, strategy)
    with strategy.scope():
        model.optimizer.learning_rate = RisingRate(least, most, len(rates))
    test = RangeTest(average)
    fit_steps(model, loaded, global_batch=global_batch, steps=len(rates), callbacks=[test])
    return RateCurve(
        rates=rates[: len(test.losses)],
        losses=test.losses,
        smoothed=test.smoothed,
        diverged=test.diverged,
    )


class RisingRate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises by the same factor at each step.

    Args:
        least: That of the first step.
        most: That of the last one.
        steps: How many there are.
    """

    def __init__(self, least: float, most: float, steps: int) -> None:
        self.least, self.most, self.steps = least, most, steps

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of a step, counted from 0."""
        growth = math.log(self.most / self.least) / (self.steps - 1)
        return self.least * keras.ops.exp(growth * keras.ops.cast(step, keras.config.floatx()))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"least": self.least, "most": self.most, "steps": self.steps}


class RangeTest(keras.callbacks.Callback):
    """Records the loss of each batch, and ends the training when it explodes.

    Args:
        average: The running average of the losses.
    """

    def __init__(self, average: LossAverage) -> None:
        super().__init__()
        self._average = average
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.diverged = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Let the metrics be those of this batch alone: Keras averages over the epoch."""
        self.model.reset_metrics()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Record the loss."""
        self.losses.append(float(logs["loss"]))
        smoothed, self.diverged = self._average.add(self.losses[-1])
        self.smoothed.append(smoothed)
        if self.diverged:
            self.model.stop_training = True
