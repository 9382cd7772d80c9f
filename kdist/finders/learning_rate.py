"""`find_learning_rate`: the learning rate range test."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from .._upstream.internals import optimizers_of
from ..arguments import positive_integer
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import TrainingError, UserError
from .rate_curve import LossAverage, RateCurve, check_range, rates_of
from .short_fit import Function, as_functions, build_model, fit_steps

_BATCH = 32


def find_learning_rate(
    build: Function,
    data: Any = "data",
    *,
    batch_size: int | None = None,
    replicas: int | None = None,
    least: float = 1e-6,
    most: float = 10.0,
    steps: int = 200,
    monitor: str = "loss",
    optimizer: str | None = None,
    seed: int | None = 0,
) -> RateCurve:
    """Train a new model with a rising learning rate, and find where its loss falls best.

    The rate rises by the same factor at each step, from `least` to `most`. The test ends when the
    running average of the loss is 4 times its minimum, and above it by more than a hundredth of the
    first loss. The losses are those of single batches, and the same on any number
    of replicas with the same global batch. The suggested rate is for that global batch, see
    `kdist.scale_learning_rate`.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`. Its optimizer is
            kept; only the learning rate or schedule is replaced.
        data: A function that returns `(x, y), (x_val, y_val)`, `(x, y), None`, a `tf.data.Dataset`
            or a `keras.utils.PyDataset`; if it has a parameter `batch_size`, it gets the global
            batch size. Validation data are not used. Or the function's name in the file of `build`.
        batch_size: Samples per replica and step, by default 32. Batched data keep their batches.
        replicas: As for `kdist.MirroredStrategy`.
        least: The first learning rate.
        most: The last one.
        steps: Steps from `least` to `most`, at least 10.
        monitor: Name under which training reports the loss; a custom `train_step` may report
            several.
        optimizer: The attribute of the model that holds the optimizer whose rate rises, such as
            `"d_optimizer"`; by default its only one.
        seed: Seed of the data, the initial weights and all other draws, set by
            `keras.utils.set_random_seed`; `None` sets no seed.

    Returns:
        The curve, with its `suggestion`.

    Raises:
        UserError: An argument is out of range, or a function fails.
        TrainingError: The loss is NaN or infinite at the first step.

    Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3, which
    raises the rate linearly; raising it by a factor, and the running average, are from Gugger 2018,
    "How Do You Find A Good Learning Rate".

    Example:
        ```python
        curve = kdist.find_learning_rate("my_model.py:build", "data", batch_size=64)
        print(curve.suggestion, curve.is_sure)
        ```
    """
    check_range(least=least, most=most, steps=steps)
    if batch_size is not None:
        positive_integer("batch_size", batch_size, hint="pass samples per replica")
    if seed is not None:
        keras.utils.set_random_seed(seed)
    functions = as_functions(build, data)
    rates = rates_of(least, most, steps)
    strategy = MirroredStrategy(replicas=replicas)
    global_batch = (batch_size or _BATCH) * strategy.num_replicas_in_sync
    loaded = functions.load_data(global_batch)
    functions.check_batch(loaded, batch_size)
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = build_model(functions, strategy)
    with strategy.scope():
        given = GivenRate(rates[0])
        optimizer_of(model, optimizer).learning_rate = given
    test = RangeTest(rates, given, monitor)
    fit_steps(model, loaded, global_batch=global_batch, steps=len(rates), callbacks=[test])
    if not math.isfinite(test.losses[0]):
        raise TrainingError(
            f"{monitor} is {test.losses[0]} at the first step, before a learning rate has had any"
            " effect: look for values in the data that are no numbers, or that are too large"
        )
    return RateCurve(
        rates=rates[: len(test.losses)],
        losses=test.losses,
        smoothed=test.smoothed,
        diverged=test.diverged,
    )


def optimizer_of(model: keras.Model, name: str | None) -> keras.optimizers.Optimizer:
    """Return the optimizer whose rate is varied: the only one, or that of an attribute.

    Raises:
        UserError: There are several, or none of this name.
    """
    found = optimizers_of(model)
    # A compile() of the model's own leaves Keras's default beside them, which nothing uses.
    names = [key for key, value in vars(model).items() if any(value is one for one in found)]
    if name is None and len(found) == 1:
        return found[0]
    if name is None or name not in names:
        received = f"received optimizer {name!r}" if name else "a range test is of one of them"
        raise UserError(
            f"the model has {len(found)} optimizers, in the attributes {', '.join(names)}, and"
            f" {received}: pass the attribute of one as optimizer (--optimizer)"
        )
    chosen: keras.optimizers.Optimizer = getattr(model, name)
    return chosen


class GivenRate(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate that was set last, whatever steps the optimizer has taken.

    An optimizer counts no step that it leaves out for the scale of a float16 loss, and that of a
    model from a file has counted others.

    Args:
        rate: The first.
    """

    def __init__(self, rate: float) -> None:
        self._rate = keras.Variable(rate, trainable=False, dtype=keras.config.floatx())

    def __call__(self, step: Any) -> Any:  # noqa: ARG002
        """Return the learning rate."""
        import tensorflow as tf

        return tf.identity(self._rate.value)  # a variable of several replicas is no argument

    def set(self, rate: float) -> None:
        """Set the rate of the steps that follow."""
        self._rate.assign(rate)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"rate": float(keras.ops.convert_to_numpy(self._rate))}


class RangeTest(keras.callbacks.Callback):
    """Sets the rate of each batch, records its loss, and ends the training when that explodes.

    Args:
        rates: Of the batches.
        given: Where they are set.
        monitor: The name of the loss.
    """

    def __init__(self, rates: Sequence[float], given: GivenRate, monitor: str) -> None:
        super().__init__()
        self._average = LossAverage()
        self._rates = rates
        self._given = given
        self._monitor = monitor
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.diverged = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Let the metrics be those of this batch alone: Keras averages over the epoch."""
        self.model.reset_metrics()
        self._given.set(self._rates[len(self.losses)])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Record the loss."""
        if self._monitor not in logs:
            raise UserError(
                f"training reports {', '.join(logs) or 'nothing'}, but no {self._monitor}: pass"
                " the name of the loss as monitor (--monitor)"
            )
        self.losses.append(float(logs[self._monitor]))
        smoothed, self.diverged = self._average.add(self.losses[-1])
        self.smoothed.append(smoothed)
        if self.diverged:
            self.model.stop_training = True
