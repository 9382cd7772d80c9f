"""Images, steps and seconds of every epoch's training part."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from ..arguments import positive_integer
from .image_count import count_images
from .resumable import ResumableCallback
from .throughput_meter import Clock, ThroughputMeter


class EpochTiming(ResumableCallback):
    """Counts images, steps and seconds of every epoch's training part.

    The time runs from the start of an epoch's first step to the end of its last step. Validation
    and the work of other callbacks at the end of an epoch are excluded. A subclass reads `rate`,
    `steps` and `epoch_seconds` in its `on_epoch_end`, after calling `super().on_epoch_end`.

    Args:
        total_images: Images in one epoch; counted by default.
        verbose: 0 prints nothing.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        meter: Images and seconds of all epochs so far.
        warm_meter: The same, without the first epoch of every fit, which includes TensorFlow's
            tracing and the devices' warm-up.
        warm_steps: Steps in `warm_meter`.
        rate: Images per second of the last epoch; None if it had no step.
        steps: Steps of the last epoch.
        timed_steps: Those of them that were trained in this process: fewer than `steps` in an epoch
            that was resumed in the middle.
        epoch_seconds: Seconds of the `timed_steps`.

    Raises:
        UserError: If `total_images` is not an integer of at least 1, or, when training begins, if
            the images cannot be counted.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {
        "images": 0,
        "seconds": 0.0,
        "warm_images": 0,
        "warm_seconds": 0.0,
        "warm_steps": 0,
    }

    meter: ThroughputMeter
    warm_meter: ThroughputMeter
    warm_steps: int

    def __init__(
        self,
        total_images: int | None = None,
        *,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        if total_images is not None:
            total_images = positive_integer(
                "total_images",
                total_images,
                hint="pass the number of images in one epoch, or omit it to have them counted",
            )
        self.total_images = total_images
        self.clock = clock
        self.rate: float | None = None
        self.steps = 0
        self.epoch_seconds = 0.0
        self._epochs_of_fit = 0
        super().__init__(verbose=verbose)

    def get_state(self) -> dict[str, Any]:
        """Return the images, steps and seconds so far, including those of an unfinished epoch."""
        images, seconds = 0, 0.0
        if self.meter.started and (self.total_images is None or self._steps_of_epoch):
            images, seconds = self._images_of_stretch(), self.meter.running_seconds
        return {
            "images": self.meter.images + images,
            "seconds": self.meter.seconds + seconds,
            "warm_images": self.warm_meter.images,
            "warm_seconds": self.warm_meter.seconds,
            "warm_steps": self.warm_steps,
        }

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reject a model whose images cannot be counted, before its first epoch."""
        super().on_train_begin(logs)
        self._epochs_of_fit = 0
        self._images_seen()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reset the values of the previous epoch."""
        super().on_epoch_begin(epoch, logs)
        self.rate, self.steps, self.epoch_seconds = None, 0, 0.0
        self._steps_before = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the clock at the first step of an epoch."""
        super().on_train_batch_begin(batch, logs)
        if not self.meter.started:
            self._images_before, self._steps_before = self._images_seen(), batch
            self.meter.start()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the time: Keras has read the step's `logs`, so the step has finished."""
        super().on_train_batch_end(batch, logs)
        self.meter.lap()
        self.steps = self.steps_done(batch)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Count the images of the epoch before validation resets the count."""
        super().on_test_begin(logs)
        self._end_stretch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop the epoch's clock."""
        super().on_epoch_end(epoch, logs)
        self._end_stretch()

    @property
    def timed_steps(self) -> int:
        """Steps of the epoch that were trained in this process."""
        return self.steps - self._steps_before

    @property
    def _steps_of_epoch(self) -> int | None:
        return (self.params or {}).get("steps")

    def _images_of_stretch(self) -> int:
        """Images of the `timed_steps`."""
        if self.total_images is None:
            return self._images_seen() - self._images_before
        share = self.timed_steps / self._steps_of_epoch if self._steps_of_epoch else 1
        return round(self.total_images * share)

    def _images_seen(self) -> int:
        return 0 if self.total_images is not None else count_images(self.model)

    def _end_stretch(self) -> None:
        if not self.meter.started:
            return
        images = self._images_of_stretch()
        before = self.meter.seconds
        self.rate = self.meter.add(images=images)
        self.epoch_seconds = self.meter.seconds - before
        self._epochs_of_fit += 1
        if self._epochs_of_fit > 1:
            self.warm_meter.add(images=images, seconds=self.epoch_seconds)
            self.warm_steps += self.timed_steps

    def _assign(self, state: Mapping[str, Any]) -> None:
        self.meter = ThroughputMeter(
            images=state["images"], seconds=state["seconds"], clock=self.clock
        )
        self.warm_meter = ThroughputMeter(
            images=state["warm_images"], seconds=state["warm_seconds"], clock=self.clock
        )
        self.warm_steps = state["warm_steps"]
        self._images_before = self._steps_before = 0
