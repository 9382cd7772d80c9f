"""`find_learning_rate`: the learning rate range test."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..._upstream.models import optimizers_of
from ...arguments import positive_integer
from ...errors import TrainingError, UserError
from ...strategies.mirrored_strategy import MirroredStrategy
from ...training.user_model.user_functions import UserFunctions, load_functions
from .rate_curve import RateCurve, average_losses, check_range, space_rates
from .short_fit import train_model

_DEFAULT_BATCH = 32


def find_learning_rate(
    build: str | Callable[..., Any],
    data: str | Callable[..., Any] = "data",
    *,
    batch_size: int | None = None,
    replicas: int | None = None,
    least: float = 1e-6,
    most: float = 10.0,
    steps: int = 200,
    seed: int = 0,
) -> RateCurve:
    """Run a learning rate range test: train a new model with a rising rate, and record the loss.

    The learning rate rises by the same factor at each step, from `least` to `most`. The test ends
    when the running average of the loss exceeds 4 times its minimum, and the rise exceeds a
    hundredth of the first loss. Each loss is the loss of a single batch. The losses are equal on
    any number of replicas with the same global batch. The suggested rate is for that global batch;
    `kdist.scale_learning_rate` converts the rate.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`. Its optimizer is
            kept; only the learning rate or schedule is replaced.
        data: A function that returns `(x, y), (x_val, y_val)`, `(x, y), None`, a `tf.data.Dataset`
            or a `keras.utils.PyDataset`; if it has a parameter `batch_size`, it gets the global
            batch size. Validation data are not used. For a `build` from a file: the function's name
            in that file, or `"FILE.py:FUNCTION"`.
        batch_size: Samples per replica and step, by default 32. Batched data keep their batches.
        replicas: As for `kdist.MirroredStrategy`.
        least: The first learning rate.
        most: The last learning rate.
        steps: Steps from `least` to `most`, at least 10.
        seed: Seed of the data, the initial weights and all random numbers, set by
            `keras.utils.set_random_seed`.

    Returns:
        The curve, with its `suggestion`.

    Raises:
        UserError: An argument is out of range, a function fails, or the model has several
            optimizers or reports no `loss`.
        TrainingError: The loss is NaN or infinite at the first step.

    Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3, raises
    the rate linearly. Gugger 2018, "How Do You Find A Good Learning Rate", raises the rate by a
    factor, and uses the running average.

    Examples:
        ```python
        curve = kdist.find_learning_rate("my_model.py:build", "data", batch_size=64)
        print(curve.suggestion, curve.doubt)
        ```
    """
    check_range(least=least, most=most, steps=steps)
    if batch_size is not None:
        positive_integer("batch_size", batch_size, hint="pass samples per replica")
    keras.utils.set_random_seed(seed)
    functions = _user_functions(build, data)
    strategy = MirroredStrategy(replicas=replicas)
    global_batch = (batch_size or _DEFAULT_BATCH) * strategy.num_replicas_in_sync
    loaded = functions.load_data(global_batch)
    functions.check_batch(loaded, batch_size)
    keras.utils.set_random_seed(seed)
    test = RangeTest(space_rates(least, most, steps))
    train_model(functions, strategy, loaded, global_batch=global_batch, epochs=steps, callback=test)
    if not math.isfinite(test.losses[0]):
        raise TrainingError(
            f"loss is {test.losses[0]} at the first step, before a learning rate has had any"
            " effect: look for NaN, infinite or very large values in the data"
        )
    return test.curve


def _user_functions(build: Any, data: Any) -> UserFunctions:
    if isinstance(build, str) and isinstance(data, str):
        return load_functions(build, data)
    if not callable(build) or not callable(data):
        raise UserError(
            f"received build={build!r} and data={data!r}; expected a function that returns a"
            " compiled model and a function that returns the data, or 'FILE.py:FUNCTION' and the"
            " name of the data's function"
        )
    return UserFunctions(build=build, make_data=data)


class RangeTest(keras.callbacks.Callback):
    """Sets the rate of each batch, records its loss, and ends training when the loss explodes."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.losses: list[float] = []
        self._rates = rates

    @property
    def curve(self) -> RateCurve:
        """The curve so far."""
        rates = self._rates[: len(self.losses)]
        return RateCurve(rates=rates, losses=self.losses, smoothed=average_losses(self.losses))

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Replace the learning rate or schedule of the model by a variable."""
        optimizers = optimizers_of(self.model)
        if len(optimizers) != 1:
            raise UserError(
                f"the model has {len(optimizers)} optimizers, but a range test varies a single"
                " learning rate: build a model with one optimizer"
            )
        with self.model.distribute_strategy.scope():
            rate = keras.Variable(self._rates[0], trainable=False, dtype=keras.config.floatx())
        # The rate does not depend on the optimizer's count of steps: the optimizer does not count
        # steps that it skips because of float16 loss scaling, and may have counted earlier steps.
        optimizers[0].learning_rate = lambda: tf.identity(rate.value)
        self._rate = rate

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reset the metrics, so that they cover this batch alone, and set its learning rate."""
        self.model.reset_metrics()
        self._rate.assign(self._rates[len(self.losses)])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Record the loss."""
        if "loss" not in logs:
            raise UserError(
                "the learning rate is chosen by the loss, but train_step returns only"
                f" {', '.join(logs) or 'an empty dict'}: return 'loss', too"
            )
        self.losses.append(float(logs["loss"]))
        if self.curve.diverged or len(self.losses) == len(self._rates):
            self.model.stop_training = True
