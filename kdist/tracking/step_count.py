"""`StepCount`: the number of the current training step."""

from typing import Any


class StepCount:
    """Counts the steps of a fit over all its epochs, from 1, by Keras's callback arguments."""

    def __init__(self) -> None:
        self.now = 0
        self._before_epoch = 0

    def begin_epoch(self) -> None:
        """Note that Keras counts batches from 0 again."""
        self._before_epoch = self.now

    def after(self, batch: int, params: dict[str, Any] | None) -> int:
        """Return the number of steps trained when Keras calls `on_train_batch_end` for `batch`.

        With several steps per execution, Keras passes the number of the execution's last possible
        step, which may be beyond the end of the epoch.
        """
        known = (params or {}).get("steps")
        return self._before_epoch + (min(batch + 1, known) if known else batch + 1)
