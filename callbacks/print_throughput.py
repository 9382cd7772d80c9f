"""`PrintThroughput`: images per second of every epoch, or every few steps."""

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from .._upstream import is_chief, steps_taken
from ..arguments import positive_integer
from ..performance.flops import peak_flops_per_second, training_flops
from .epoch_timing import EpochTiming
from .image_count import count_images, counts_images, sum_losses
from .step_intervals import StepIntervals, StepTotals, step_line
from .throughput_meter import Clock


class PrintThroughput(EpochTiming):
    """Prints the images per second of every epoch, as `Images/sec: 1332.0`.

    The time runs from the start of an epoch's first step to the end of its last step. Validation
    and the work of other callbacks at the end of an epoch are excluded. The first epoch of a fit
    also includes TensorFlow's tracing and the devices' warm-up, so the summary at the end skips it:
    `Images/sec after the first epoch: 1332.0 (666.0 per replica, 0.0961 seconds per step)`.

    These values are added to `logs`, so the history and every later callback in the list, such as
    `CSVLogger`, get them: `images_per_sec`, `images_per_sec_per_replica`, `seconds_per_step` and,
    with `utilization`, `model_flops_per_sec` and `utilization`.

    Images are counted over all replicas. The count comes from the model (see `count_images`), so
    any kind of data works, including a `tf.data.Dataset` of unknown size. A callback that calls
    `model.evaluate` at the end of an epoch resets Keras's count: put it after this one.

    With `every=10` it also prints a line every 10 steps, immediately, in the format of TensorFlow's
    CIFAR-10 tutorial: `step 120, loss = 1.83 (2140.3 examples/sec; 0.060 sec/batch)`. Steps are
    counted from the first step of training, also in a resumed run. The loss is the mean over the
    images of all replicas since the previous line, and the time is that of the training steps only.
    With `total_images`, each step counts as an equal part of them; if the number of steps is
    unknown and images cannot be counted, the line has the time only: `step 120, loss = 1.83 (0.060
    sec/batch)`. Such a line interrupts Keras's progress bar; pass `verbose=0` or `2` to `fit` to
    turn the bar off.

    Args:
        total_images: Images in one epoch. By default they are counted, which is not possible for a
            model with its own `train_step`.
        utilization: Also report model FLOPs utilization: the floating-point operations of training
            on one image (see `kdist.performance.flops.training_flops`) times images per second,
            divided by the float32 rate that a matrix multiplication reaches on these devices,
            measured for about one second when training begins. NaN for a model whose operations
            cannot be counted.
        every: Steps from one such line to the next; `None` for no such lines. With several steps
            per execution, a line is printed after the execution that contains its step.
        verbose: 0 prints nothing and only fills `logs`.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        meter: The `ThroughputMeter` with the images and seconds of all epochs so far.
        warm_meter: The same, without the first epoch of every fit.

    Raises:
        UserError: If `total_images` or `every` is not an integer of at least 1, or, when training
            begins, if the images cannot be counted.

    Example:
        ```python
        history = model.fit(train, epochs=3, callbacks=[PrintThroughput()])
        history.history["images_per_sec"]
        model.fit(train, verbose=0, callbacks=[PrintThroughput(every=10)])
        ```
    """

    _first_step: int | None

    initial_state: ClassVar[Mapping[str, Any]] = {
        **EpochTiming.initial_state,
        "interval": list(StepTotals()),
    }

    def __init__(
        self,
        total_images: int | None = None,
        *,
        utilization: bool = False,
        every: int | None = None,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        if every is not None:
            every = positive_integer("every", every, hint="pass the steps between two lines")
        self.every = every
        self._loss = 0.0
        super().__init__(total_images, verbose=verbose, clock=clock)
        self.utilization = utilization
        self._flops = self._peak = math.nan

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Measure the devices' peak rate, if `utilization` is set."""
        super().on_train_begin(logs)
        self._first_step = None
        if self.utilization:
            self._flops = training_flops(self.model)
            self._peak = peak_flops_per_second(self.model.distribute_strategy, clock=self.clock)

    def get_state(self) -> dict[str, Any]:
        """Return the state of `EpochTiming`, and the steps since the last line."""
        return {**super().get_state(), "interval": list(self._intervals.so_far(self._totals()))}

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin to count the epoch's steps."""
        if self._first_step is not None:
            # Not the optimizer's, which has one more after data of an unknown length.
            self._first_step += self.steps
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the losses of an epoch that was resumed in the middle."""
        starts = not self.meter.started
        super().on_train_batch_begin(batch, logs)
        if starts and self.every:
            self._counts = self._counts_in_lines()
            if self._counts:
                self._counted_before = count_images(self.model), sum_losses(self.model)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Print a line if it is due."""
        before = self.steps
        super().on_train_batch_end(batch, logs)
        if not self.every:
            return
        self._loss = float((logs or {}).get("loss", math.nan))
        if self._first_step is None:
            before = self._steps_before
            self._first_step = steps_taken(self.model.optimizer) - self.steps
        first, step = self._first_step + before, self._first_step + self.steps
        if step // self.every > first // self.every:
            self._print_at_once(step_line(step, self._intervals.end(self._totals())))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the epoch's rate and add it to `logs`."""
        super().on_epoch_end(epoch, logs)
        if self.rate is None:
            return
        self.print_line(f"Images/sec: {self.rate:.1f}")
        values = {
            "images_per_sec": self.rate,
            "images_per_sec_per_replica": self.rate / self._replicas,
            "seconds_per_step": self.epoch_seconds / (self.timed_steps or math.nan),
        }
        if self.utilization:
            values["model_flops_per_sec"] = self.rate * self._flops
            values["utilization"] = values["model_flops_per_sec"] / self._peak
        if logs is not None:
            logs.update(values)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the rate of all epochs except the first."""
        if self.warm_steps:
            rate = self.warm_meter.images_per_second
            self.print_line(
                f"Images/sec after the first epoch: {rate:.1f} ({rate / self._replicas:.1f} per"
                f" replica, {self.warm_meter.seconds / self.warm_steps:.4f} seconds per step)"
            )
            if self.utilization:
                flops = rate * self._flops
                self.print_line(
                    f"Utilization: {100 * flops / self._peak:.1f} % of {self._peak / 1e12:.2f}"
                    f" TFLOP/s ({flops / 1e12:.3f} TFLOP/s of the model)"
                )
        super().on_train_end(logs)

    def _totals(self) -> StepTotals:
        """Return the totals of the epoch so far, of its part in this process."""
        if not self.every or not self.meter.started:
            return StepTotals()
        steps, seconds = self.timed_steps, self.meter.running_seconds
        if self._counts:
            before, loss_before = self._counted_before
            images, losses = count_images(self.model) - before, sum_losses(self.model)
            return StepTotals(steps, images, seconds, losses - loss_before, images)
        share = steps / self._steps_of_epoch if self._steps_of_epoch else math.nan
        given = (self.total_images or math.nan) * share
        return StepTotals(steps, given, seconds, self._loss * steps, steps)

    def _counts_in_lines(self) -> bool:
        """Whether images are counted; else steps have equal parts of `total_images`."""
        if self.total_images is None:
            return True
        return not self._steps_of_epoch and counts_images(self.model)

    def _end_stretch(self) -> None:
        if self.meter.started:
            self._intervals.end_epoch(self._totals())
        super()._end_stretch()

    def _print_at_once(self, line: str) -> None:
        if self.verbose and is_chief(self.model):
            bar = self._bar_is_open and self.params.get("verbose") == 1
            print(f"\n{line}" if bar else line, flush=True)

    def _assign(self, state: Mapping[str, Any]) -> None:
        super()._assign(state)
        self._intervals = StepIntervals(StepTotals(*state["interval"]))
        self._first_step = None
        self._counts, self._counted_before = False, (0, 0.0)

    @property
    def _replicas(self) -> int:
        return int(self.model.distribute_strategy.num_replicas_in_sync)
