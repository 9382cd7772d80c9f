"""The logs of an epoch that is resumed behind its last step, from which none come."""

import weakref
from typing import Any

import keras

_resumed: "weakref.WeakKeyDictionary[keras.Model, Any]" = weakref.WeakKeyDictionary()


def set_resumed_logs(model: keras.Model, logs: Any) -> None:
    """Have the epoch that begins end with these logs, unless it has a step."""
    _resumed[model] = logs


def take_resumed_logs(model: keras.Model, logs: Any) -> Any:
    """The logs of the epoch's last step, or those that were set where it had none."""
    resumed = _resumed.pop(model, None)
    return resumed if resumed and not logs else logs
