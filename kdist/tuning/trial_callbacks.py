"""Callbacks of a trial: check the loss and metrics, log seconds to target."""

import math
import sys
from typing import Any

import keras_tuner

from ..callbacks.resumable import ResumableCallback
from ..callbacks.stop_at_accuracy import StopAtAccuracy
from ..callbacks.stop_at_non_finite import StopAtNonFinite
from .failures import SearchError
from .objective import OF_VALIDATION, missing_metric

# A patience that is never reached, for a time budget without a target.
_NEVER = sys.maxsize


def stop_of_trial(
    objective: str, target: float | None, patience: int, *, time_budget: float | None
) -> StopAtAccuracy | None:
    """Make what ends a trial before its last epoch; `None` if nothing does.

    Args:
        objective: Name of the search's objective.
        target: Accuracy that ends the trial; `None` for none.
        patience: Epochs in a row that have to beat it.
        time_budget: Seconds after which the trial ends; `None` for none.
    """
    if target is None and time_budget is None:
        return None
    return StopAtAccuracy(
        {objective: 0.0} if target is None else target,
        _NEVER if target is None else patience,
        time_budget=time_budget,
        verbose=0,
    )


class FailOnNonFinite(ResumableCallback):
    """Fails the trial at the batch whose loss is NaN or infinite, or after such a validation.

    Args:
        stop: The callback that looks at the loss; it has to come earlier in the list.
    """

    def __init__(self, stop: StopAtNonFinite) -> None:
        super().__init__()
        self.stop = stop

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Check the loss."""
        if self.stop.found is not None:
            raise keras_tuner.errors.FailedTrialError(str(self.stop.found))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Check the validation loss."""
        value = (logs or {}).get("val_loss")
        if value is not None and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(
                f"val_loss was {value:g} after epoch {epoch + 1}"
            )


class RequireMetric(ResumableCallback):
    """Ends the search if a validation does not report the metric that trials are compared by.

    Args:
        name: Of the metric in `logs`. One that only a callback can add is not checked.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Check the metric."""
        names = list(logs or {})
        validated = any(name.startswith("val_") for name in names)
        if validated and self.name in OF_VALIDATION and self.name not in names:
            raise SearchError(missing_metric(self.name, names))


class LogSecondsToTarget(ResumableCallback):
    """Adds the seconds to the target to `logs` once it is reached.

    Args:
        stop: The callback that measures them; it has to come earlier in the list.
    """

    def __init__(self, stop: StopAtAccuracy) -> None:
        super().__init__()
        self.stop = stop

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Add the seconds if the target is reached."""
        if self.stop.reached and logs is not None:
            logs["seconds_to_target"] = self.stop.met_seconds
