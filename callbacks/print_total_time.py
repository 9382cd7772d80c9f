"""`PrintTotalTime`: seconds of training so far."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from .resumable import Clock, ResumableCallback


class PrintTotalTime(ResumableCallback):
    """Prints the seconds since training began, after every epoch and at the end.

    The lines are `Cumulative training time after epoch 3: 41.70` and, once training has ended,
    `Cumulative training time: 41.70`, in wall-clock seconds, validation included. A resumed run
    (`set_state`) continues from the seconds of the original run.

    Args:
        verbose: 0 prints nothing and only counts the seconds.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        seconds: Seconds from the start of training to its last step or epoch so far.

    Example:
        ```python
        total_time = PrintTotalTime()
        model.fit(train, epochs=3, callbacks=[total_time])
        total_time.seconds
        ```
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"seconds": 0.0}
    seconds: float

    def __init__(self, *, verbose: int = 1, clock: Clock = time.perf_counter) -> None:
        super().__init__(verbose=verbose)
        self.clock = clock
        self._began = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start counting, from 0 or from the seconds of the resumed run."""
        super().on_train_begin(logs)
        self._began = self.clock() - self.seconds

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Update the time, for a run that is interrupted or saved within an epoch."""
        super().on_train_batch_end(batch, logs)
        self._count()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the seconds so far."""
        super().on_epoch_end(epoch, logs)
        self._count()
        self.print_line(f"Cumulative training time after epoch {epoch + 1}: {self.seconds:.2f}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print the seconds of the whole run."""
        super().on_train_end(logs)
        self._count()
        self.print_line(f"Cumulative training time: {self.seconds:.2f}")

    def _count(self) -> None:
        self.seconds = self.clock() - self._began
