"""`StepCount`: the number of the current training step."""

from collections.abc import Mapping
from typing import Any


class StepCount:
    """Counts the steps of a fit over all its epochs, from 1, by Keras's callback arguments.

    Attributes:
        now: Steps that were trained.
    """

    def __init__(self) -> None:
        self.now = 0
        self._before_epoch = 0
        self._is_amid_epoch = self._is_resumed = False

    def begin_epoch(self) -> None:
        """Note that Keras counts batches from 0 again, unless the epoch is one that is resumed."""
        if not self._is_resumed:
            self._before_epoch = self.now
        self._is_amid_epoch, self._is_resumed = True, False

    def end_epoch(self) -> None:
        """Note that the next epoch is another one."""
        self._is_amid_epoch = False

    def after(self, batch: int, params: dict[str, Any] | None) -> int:
        """Return the number of steps trained when Keras calls `on_train_batch_end` for `batch`.

        With several steps per execution, Keras passes the number of the execution's last possible
        step, which may be beyond the end of the epoch.
        """
        known = (params or {}).get("steps")
        return self._before_epoch + (min(batch + 1, known) if known else batch + 1)

    def state(self) -> dict[str, Any]:
        """Return the counts as values that JSON can hold."""
        return {"now": self.now, "before": self._before_epoch, "amid": self._is_amid_epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.now, self._before_epoch = state["now"], state["before"]
        self._is_resumed = state["amid"]
