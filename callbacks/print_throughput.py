"""`PrintThroughput`: print images per second of every epoch, or every few steps."""

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from .._upstream.hooks import is_chief
from .._upstream.models import overridden_steps
from .._upstream.optimizers import steps_taken
from ..arguments import positive_integer
from ..errors import UserError
from .resumable import Clock, ResumableCallback


class PrintThroughput(ResumableCallback):
    """Prints the images per second of every epoch, as `Images/sec: 1332.0`.

    The time runs from the start of an epoch's first step to the end of its last step. Validation
    and the work of callbacks at the end of an epoch are excluded. The first epoch of a fit includes
    TensorFlow's tracing and the devices' warm-up, so the summary at the end skips this epoch:
    `Images/sec without the first epoch: 1332.0 (666.0 per replica, 0.0961 seconds per step)`.

    The callback adds `images_per_sec` to `logs`, for the history and for every later callback in
    the list, such as `CSVLogger`.

    Images are counted over all replicas. The model provides the count (see `count_images`), so any
    kind of data works, including a `tf.data.Dataset` of unknown size. A callback that calls
    `model.evaluate` at the end of an epoch resets Keras's count: put it after this callback.

    With `every=10` the callback also prints a line every 10 steps, immediately, in the format of
    TensorFlow's CIFAR-10 tutorial: `step 120, loss = 1.83 (2140.3 examples/sec; 0.060 sec/batch)`.
    Steps are counted from the first step of training, also in a resumed run. The loss and the time
    cover the steps since the previous line, or since the beginning of the epoch or the resumed run.
    Lines within an epoch interrupt Keras's progress bar; pass `verbose=0` or `2` to `fit` to turn
    the bar off.

    Args:
        total_images: Images per epoch. By default the model counts the images; a model with its own
            `train_step` cannot. With `total_images`, the lines of `every` show the loss that `fit`
            reports, and no images per second if `fit` does not know the steps per epoch.
        every: Steps from one line to the next; `None` for no lines within epochs. With several
            steps per execution, a line is printed after the execution that contains its step.
        verbose: 0 prints nothing and only fills `logs`.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: `total_images` or `every` is not an integer of at least 1. When training begins:
            the images cannot be counted.

    Examples:
        ```python
        history = model.fit(train, epochs=3, callbacks=[PrintThroughput()])
        history.history["images_per_sec"]
        model.fit(train, verbose=0, callbacks=[PrintThroughput(every=10)])
        ```
    """

    # Totals of all epochs except the first epoch of every fit.
    initial_state: ClassVar[Mapping[str, Any]] = {"images": 0, "seconds": 0.0, "steps": 0}
    images: int
    seconds: float
    steps: int

    def __init__(
        self,
        total_images: int | None = None,
        *,
        every: int | None = None,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__(verbose=verbose)
        if total_images is not None:
            hint = "pass the number of images in one epoch, or None to let kdist count the images"
            total_images = positive_integer("total_images", total_images, hint=hint)
        if every is not None:
            hint = "pass the number of steps from one printed line to the next"
            every = positive_integer("every", every, hint=hint)
        self.total_images = total_images
        self.every = every
        self.clock = clock
        self._start_time: float | None = None  # of the epoch's first step
        self._rate: float | None = None  # of the epoch's training part, when it has ended

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reject a model if its images cannot be counted."""
        super().on_train_begin(logs)
        self._read_counts()
        self._is_first_epoch = True
        self._steps_before_epoch: int | None = None  # steps of training before the epoch
        self._steps_of_epoch = 0  # up to now

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if self._steps_before_epoch is not None:
            self._steps_before_epoch += self._steps_of_epoch
        self._start_time, self._rate, self._steps_of_epoch = None, None, 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the clock at the first step of an epoch, which may be resumed in the middle."""
        super().on_train_batch_begin(batch, logs)
        if self._start_time is None:
            self._first_step, self._counts_at_epoch_start = batch, self._read_counts()
            self._start_time = self._end_time = self.clock()
            self._state_at_last_line = (batch, *self._counts_at_epoch_start, self._start_time)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Record the time. Keras has read the step's `logs`, so the step has finished."""
        super().on_train_batch_end(batch, logs)
        self._end_time = self.clock()
        before, self._steps_of_epoch = (
            self._steps_of_epoch or self._first_step,
            self.steps_of_epoch_after(batch),
        )
        if self.every and self._steps_before_epoch is None:
            self._steps_before_epoch = steps_taken(self.model.optimizer) - self._steps_of_epoch
        if self.every and self._steps_before_epoch is not None:
            step = self._steps_before_epoch + self._steps_of_epoch
            if step // self.every > (self._steps_before_epoch + before) // self.every:
                self._print_step(step, (logs or {}).get("loss", math.nan))

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Count the images of the epoch before validation resets the count."""
        super().on_test_begin(logs)
        self._compute_epoch_rate()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._compute_epoch_rate()
        if self._rate is None:  # an epoch without data
            return
        if math.isfinite(self._rate):  # an epoch that takes no time has no finite rate
            self.print_line(f"Images/sec: {self._rate:.1f}")
        if logs is not None:
            logs["images_per_sec"] = self._rate

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self.steps and self.seconds:
            rate = _divide(self.images, self.seconds)
            self.print_line(
                f"Images/sec without the first epoch: {rate:.1f} ({rate / self._replicas:.1f} per"
                f" replica, {self.seconds / self.steps:.4f} seconds per step)"
            )
        super().on_train_end(logs)

    def _compute_epoch_rate(self) -> None:
        """Compute the rate of the epoch's training part, once per epoch."""
        if self._start_time is None or self._rate is not None:
            return
        seconds, steps = self._end_time - self._start_time, self._steps_of_epoch - self._first_step
        counted = self._read_counts()[0] - self._counts_at_epoch_start[0]
        images = self._count_images(counted, steps, epoch_steps=self._steps_of_epoch)
        if not self._is_first_epoch:
            self.images += 0 if math.isnan(images) else round(images)
            self.seconds, self.steps = self.seconds + seconds, self.steps + steps
        self._is_first_epoch = False
        self._rate = _divide(images, seconds)

    def _print_step(self, step: int, loss: float) -> None:
        """Print the line of the steps since the previous line."""
        now = (self._steps_of_epoch, *self._read_counts(), self._end_time)
        steps, counted, losses, seconds = (
            value - before for value, before in zip(now, self._state_at_last_line, strict=True)
        )
        self._state_at_last_line = now
        if self.total_images is None:
            loss = _divide(losses, counted)
        rate = _divide(self._count_images(counted, steps), seconds)
        shown = "" if math.isnan(rate) else f"{rate:.1f} examples/sec; "
        line = f"step {step}, loss = {loss:.2f} ({shown}{_divide(seconds, steps):.3f} sec/batch)"
        if self.verbose and is_chief(self.model):
            bar = self._bar_is_open and self.params.get("verbose") == 1
            print(f"\n{line}" if bar else line, flush=True)

    def _read_counts(self) -> tuple[int, float]:
        """Return the number of images that Keras has counted, and the sum of their losses."""
        return (0, 0.0) if self.total_images is not None else _images_and_losses(self.model)

    def _count_images(self, counted: float, steps: float, *, epoch_steps: int = 0) -> float:
        """Return the number of images in `steps` steps.

        `epoch_steps` is the number of steps per epoch, in case `fit` does not know it.
        """
        if self.total_images is None:
            return counted
        return self.total_images * _divide(steps, (self.params or {}).get("steps") or epoch_steps)

    @property
    def _replicas(self) -> int:
        return int(self.model.distribute_strategy.num_replicas_in_sync)


def _divide(number: float, divisor: float) -> float:
    return number / divisor if divisor else math.nan


def count_images(model: Any) -> int:
    """Return the number of images that a model has seen since its metrics were last reset.

    Keras weights the average loss of an epoch by batch size, so the `count` of the average is the
    number of images over all replicas, also with a smaller last batch, with any sample weights, and
    for a dataset of unknown size. Keras resets the count when an epoch or a validation begins. The
    count is a float32: exact up to 2**24 images per epoch.

    Args:
        model: A compiled `keras.Model`.

    Raises:
        UserError: The model does not count its images, see `can_count_images`.

    Examples:
        >>> model.fit(images, labels)
        >>> count_images(model) == len(images)
        True
    """
    return _images_and_losses(model)[0]


def can_count_images(model: Any) -> bool:
    """Whether a compiled model counts the images that it trains on.

    A model with its own `train_step` or `metrics` may keep no count, and a count in half precision
    is not exact.
    """
    return _loss_average(model) is not None


def _loss_average(model: Any) -> keras.metrics.Mean | None:
    if "train_step" in overridden_steps(model) or type(model).metrics is not keras.Model.metrics:
        return None
    mean = next((metric for metric in model.metrics if metric.name == "loss"), None)
    is_exact = isinstance(mean, keras.metrics.Mean) and mean.count.dtype in ("float32", "float64")
    return mean if is_exact else None


def _images_and_losses(model: Any) -> tuple[int, float]:
    mean: Any = _loss_average(model)
    if mean is None:
        raise UserError(
            f"The images that {type(model).__name__} trains on cannot be counted, because the model"
            " has its own train_step or metrics, or metrics in half precision: pass"
            " total_images=<images in one epoch>"
        )
    # Keras's own conversions return a variable of several replicas unchanged; TensorFlow's
    # conversion sums it.
    return int(tf.convert_to_tensor(mean.count.value)), float(
        tf.convert_to_tensor(mean.total.value)
    )
