"""Which step of a fit a callback is at."""

from typing import Any


class StepCount:
    """Counts a fit's steps, from 1 over all its epochs, from what Keras tells callbacks."""

    def __init__(self) -> None:
        self.now = 0
        self._before_epoch = 0

    def begin_epoch(self) -> None:
        """Note that Keras counts from 0 again."""
        self._before_epoch = self.now

    def after(self, batch: int, params: dict[str, Any] | None) -> int:
        """The step that is trained when Keras has called `on_train_batch_end` for `batch`.

        Keras names the last step that an execution of several could have had, which an epoch of
        known size may not have.
        """
        known = (params or {}).get("steps")
        return self._before_epoch + (min(batch + 1, known) if known else batch + 1)
