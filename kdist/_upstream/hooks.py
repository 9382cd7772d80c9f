"""`StrategyHooks`: what the patches know a strategy of kdist by."""

from typing import Any

import keras
from tensorflow.python.distribute import values


class StrategyHooks:
    """Base class of the strategies that the patches are for: `distribute.ExactStrategy`.

    Under any other strategy, every patch does what stock Keras does. Besides these attributes, the
    patches call the methods that `ExactStrategy` has for them.
    """

    progress: Any = None
    """The `HangWatch` that is told of the steps of this worker; `None` if nothing is."""
    workers: int
    """Number of workers: processes that train one model together."""
    worker: int
    """The number of this worker; the chief is worker 0."""

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes files and prints; true if there is only one."""
        return self.worker == 0


def hooks_of(model: keras.Model) -> Any:
    """Return the strategy of a model if it has hooks; otherwise `None`."""
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def hooks_of_copies(variable: Any) -> Any:
    """Return the strategy whose replicas each have a copy of a variable, if it has hooks."""
    value = getattr(variable, "value", None)
    if not isinstance(value, values.DistributedVariable):
        return None
    strategy = value.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def is_chief(model: Any) -> bool:
    """Whether this is the worker that writes files and prints, if a model has several workers."""
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    return hooks is None or hooks.is_chief
