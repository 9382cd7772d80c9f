"""`BestValues`: the best accuracies and losses of a fit, and when they were reached."""

import math
from collections.abc import Mapping
from typing import Any

# The epoch of the first that is there counts as the best.
_JUDGED_BY = ("val_accuracy", "val_loss", "accuracy", "loss")


class BestValues:
    """Keeps the highest accuracies and the lowest losses, epoch by epoch.

    Example:
        >>> best = BestValues()
        >>> best.update(1, {"val_accuracy": 0.8, "lr": 0.1})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
        >>> best.update(2, {"val_accuracy": 0.7})
        {'best_val_accuracy': 0.8, 'best_epoch': 1}
    """

    def __init__(self) -> None:
        self._best: dict[str, tuple[float, int]] = {}

    def state(self) -> dict[str, Any]:
        """Return the best so far, as values that JSON can hold."""
        return {name: list(best) for name, best in self._best.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._best = {name: (value, epoch) for name, (value, epoch) in state.items()}

    def update(self, epoch: int, logs: Mapping[str, Any]) -> dict[str, float]:
        """Compare the values of an epoch, and return the best so far.

        Args:
            epoch: The epoch's number, from 1.
            logs: Its values. Those whose names end in `accuracy` or `loss` are compared.

        Returns:
            `best_<name>` of each, and `best_epoch`, by the validation accuracy if there is one.
        """
        for name, value in logs.items():
            sign = {"accuracy": 1, "loss": -1}.get(name.rpartition("_")[2])
            if sign is None or math.isnan(value):
                continue
            if name not in self._best or sign * value > sign * self._best[name][0]:
                self._best[name] = (float(value), epoch)
        values: dict[str, float] = {f"best_{name}": best for name, (best, _) in self._best.items()}
        judge = next((name for name in _JUDGED_BY if name in self._best), None)
        return values if judge is None else values | {"best_epoch": self._best[judge][1]}
