"""`PrintThroughput`: images per second of every epoch."""

import math
import time
from typing import Any

from ..performance.flops import peak_flops_per_second, training_flops
from .epoch_timing import EpochTiming
from .throughput_meter import Clock


class PrintThroughput(EpochTiming):
    """Prints the images per second of every epoch, as `Images/sec: 1332.0`.

    The time runs from the start of an epoch's first step to the end of its last step. Validation
    and other callbacks' work at the end of an epoch are excluded. The first epoch of a fit also
    includes TensorFlow's tracing and the devices' warm-up, so the summary at the end skips it:
    `Images/sec after the first epoch: 1332.0 (666.0 per replica, 0.0961 seconds per step)`.

    These values are added to `logs`, so the history and every later callback in the list, such as
    `CSVLogger`, get them: `images_per_sec`, `images_per_sec_per_replica`, `seconds_per_step` and,
    with `utilization`, `model_flops_per_sec` and `utilization`.

    Images are counted over all replicas. The count comes from the model (see `count_images`), so
    any kind of data works, including a `tf.data.Dataset` of unknown size. A callback that calls
    `model.evaluate` at the end of an epoch resets Keras's count: put it after this one.

    Args:
        total_images: Images in one epoch. By default they are counted, which is not possible for a
            model with its own `train_step`.
        utilization: Also report model FLOPs utilization: the floating-point operations of training
            on one image (see `kdist.performance.flops.training_flops`) times images per second,
            divided by the float32 rate that a matrix multiplication reaches on these devices,
            measured for about one second when training begins. NaN for a model whose operations
            cannot be counted.
        verbose: 0 prints nothing and only fills `logs`.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        meter: The `ThroughputMeter` with the images and seconds of all epochs so far.
        warm_meter: The same, without the first epoch of every fit.

    Raises:
        UserError: If `total_images` is not an integer of at least 1, or, when training begins, if
            the images cannot be counted.

    Example:
        ```python
        history = model.fit(train, epochs=3, callbacks=[PrintThroughput()])
        history.history["images_per_sec"]
        ```
    """

    def __init__(
        self,
        total_images: int | None = None,
        *,
        utilization: bool = False,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__(total_images, verbose=verbose, clock=clock)
        self.utilization = utilization
        self._flops = self._peak = math.nan

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Measure the devices' peak rate, if `utilization` is set."""
        super().on_train_begin(logs)
        if self.utilization:
            self._flops = training_flops(self.model)
            self._peak = peak_flops_per_second(self.model.distribute_strategy, clock=self.clock)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the epoch's rate and add it to `logs`."""
        super().on_epoch_end(epoch, logs)
        if self.rate is None:
            return
        self.print_line(f"Images/sec: {self.rate:.1f}")
        values = {
            "images_per_sec": self.rate,
            "images_per_sec_per_replica": self.rate / self._replicas,
            "seconds_per_step": self.epoch_seconds / self.steps if self.steps else math.nan,
        }
        if self.utilization:
            values["model_flops_per_sec"] = self.rate * self._flops
            values["utilization"] = values["model_flops_per_sec"] / self._peak
        if logs is not None:
            logs.update(values)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the rate of all epochs but the first."""
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

    @property
    def _replicas(self) -> int:
        return int(self.model.distribute_strategy.num_replicas_in_sync)
