"""`PrintTotalTime`: seconds of training so far."""

from typing import Any

from .resumable import TimedCallback


class PrintTotalTime(TimedCallback):
    """Prints the seconds since training began, after every epoch and at the end.

    The lines are `Cumulative training time after epoch 3: 41.70 seconds` and, once training has
    ended, `Cumulative training time: 41.70 seconds`, in wall-clock time, validation included. A
    resumed run (`set_state`) continues from the seconds of the original run.

    Args:
        verbose: 0 prints nothing and only counts the seconds.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        seconds: Seconds from the start of training to its last step or epoch so far.

    Examples:
        ```python
        total_time = PrintTotalTime()
        model.fit(train, epochs=3, callbacks=[total_time])
        total_time.seconds
        ```
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.print_line(
            f"Cumulative training time after epoch {epoch + 1}: {self.seconds:.2f} seconds"
        )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_end(logs)
        self._count_seconds()
        self.print_line(f"Cumulative training time: {self.seconds:.2f} seconds")
