"""Images per second of each epoch's training part."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from ..arguments import positive_integer
from .image_count import count_images
from .resumable import ResumableCallback
from .throughput_meter import Clock, ThroughputMeter


class PrintThroughput(ResumableCallback):
    """Prints the images per second of every epoch, as `Images/sec: 1332.0`.

    Counts from the beginning of an epoch's first step to the end of its last one: neither
    validation nor what other callbacks do at the end of an epoch. The first epoch of a fit holds
    TensorFlow's tracing too. The value also goes into `logs` as `images_per_sec`, and from there
    into the history and into every callback that comes later in the list, such as `CSVLogger`.

    Images are those of all replicas. They are counted in the model (see `count_images`), so any
    kind of data works, a `tf.data.Dataset` of unknown size too. A callback that itself calls
    `model.evaluate` at the end of an epoch makes Keras forget the count: put it after this one.

    Args:
        total_images: Images that one epoch trains on. By default they are counted, which a model
            with its own `train_step` does not allow.
        verbose: 0 prints nothing and only fills `logs`.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        meter: The `ThroughputMeter` with the images and seconds of all epochs so far.

    Raises:
        UserError: If `total_images` is no integer of at least 1, or, when training begins, if the
            images cannot be counted.

    Example:
        ```python
        history = model.fit(train, epochs=3, callbacks=[PrintThroughput()])
        history.history["images_per_sec"]
        ```
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {"images": 0, "seconds": 0.0}

    meter: ThroughputMeter
    _rate: float | None

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
                mend="pass the images that one epoch trains on, or leave it out to count them",
            )
        self.total_images = total_images
        self.clock = clock
        super().__init__(verbose=verbose)

    def get_state(self) -> dict[str, Any]:
        """Return the images and seconds of all epochs so far."""
        return {"images": self.meter.images, "seconds": self.meter.seconds}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Refuse a model whose images cannot be counted before it has trained for an epoch."""
        super().on_train_begin(logs)
        self._images_seen()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the time at the first step of an epoch."""
        super().on_train_batch_begin(batch, logs)
        if not self.meter.started:
            self._images_before = self._images_seen()
            self.meter.start()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the time; Keras has read the step's `logs` by now and so has waited for it."""
        super().on_train_batch_end(batch, logs)
        self.meter.lap()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Count the images of the epoch before validation resets the count."""
        super().on_test_begin(logs)
        self._end_stretch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the epoch's rate and add it to `logs`."""
        super().on_epoch_end(epoch, logs)
        self._end_stretch()
        if self._rate is not None:
            self.say(f"Images/sec: {self._rate:.1f}")
            if logs is not None:
                logs["images_per_sec"] = self._rate
        self._rate = None

    def _images_seen(self) -> int:
        return 0 if self.total_images is not None else count_images(self.model)

    def _end_stretch(self) -> None:
        if self.meter.started:
            images = self.total_images or self._images_seen() - self._images_before
            self._rate = self.meter.add(images=images)

    def _assign(self, state: Mapping[str, Any]) -> None:
        self.meter = ThroughputMeter(**state, clock=self.clock)
        self._images_before = 0
        self._rate = None
