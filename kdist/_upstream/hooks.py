"""`StrategyHooks`: the methods of a strategy of kdist that the patches call."""

import logging
import weakref
from collections.abc import Mapping
from typing import Any

import keras
from tensorflow.python.distribute import values

from ..errors import UserError

OUTSIDE_OF_SCOPE = (
    "was made outside the strategy's scope, so its variables are on one device only: make it in"
    " strategy.build(lambda: ...), or inside `with strategy.scope():`"
)
_logger = logging.getLogger("kdist")
_strategies: weakref.WeakSet[Any] = weakref.WeakSet()  # that exist
_models: weakref.WeakSet[Any] = weakref.WeakSet()  # that were warned of


class StrategyHooks:
    """Interface of the strategies that the patches are for; under any other, they do nothing.

    `strategies.ExactStrategy` implements it.
    """

    progress: Any = None
    """The `HangWatch` that is told of the steps of this worker, if there is one."""
    workers: int = 1
    """Number of workers: processes that train one model together."""
    worker: int = 0
    """The number of this worker; the chief is worker 0."""
    is_used: bool = False
    """Whether a model or a step of the user has run under this strategy."""

    def register(self) -> None:
        """Let `warn_of_other_model` know of this strategy."""
        _strategies.add(self)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes files and prints; true if there is only one."""
        return self.worker == 0

    # A model

    def prepare(self, model: keras.Model) -> None:
        """Prepare a model that is about to be trained or evaluated under this strategy.

        Called before Keras builds the optimizer and traces its step. An optimizer or metric made
        outside the scope gets a copy on every replica.

        Args:
            model: The model, the same on all workers.

        Raises:
            UserError: It differs between workers, or was made outside the strategy's scope.
        """
        raise NotImplementedError

    def is_prepared(self, model: keras.Model) -> bool:
        """Return whether a model is as it was when it was prepared last, with the same steps."""
        raise NotImplementedError

    def model_state(self, model: keras.Model) -> Any:
        """Return the `ModelState` that the strategy stores for a model."""
        raise NotImplementedError

    def reset(self, model: keras.Model) -> None:
        """Reset the state of a model that is about to be compiled again."""
        raise NotImplementedError

    def automatic_xla(self, is_supported: bool) -> Any:
        """Return the value of `jit_compile="auto"`, Keras's default: true on one GPU.

        On several GPUs XLA compiles the draws alone: it draws other numbers than TensorFlow.

        Args:
            is_supported: Whether all layers of the model support XLA.
        """
        raise NotImplementedError

    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """Choose the value of `steps_per_execution="auto"` for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples per step, over all replicas; `None` if unknown.
        """
        raise NotImplementedError

    # A step

    def constant_made(self, numbers: Any, constant: Any) -> None:
        """Warn of a number in a step that follows from the number of replicas outside of it.

        Args:
            numbers: The value and the shape of a constant, as the step has them.
            constant: The tensor.
        """
        raise NotImplementedError

    # Workers

    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` if the workers differ in any value, or are doing different things.

        Args:
            event: The work of this worker, such as `fit`.
            values: By name, anything that JSON can hold.
        """

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the values that the workers have passed, the chief's first.

        Args:
            event: The work of this worker, such as `fit`.
            value: Anything that JSON can hold.
        """
        del event
        return [value]


def hooks_of(model: keras.Model) -> Any:
    """Return the strategy of a model if it has hooks; otherwise `None`."""
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def hooks_of_copies(variable: Any) -> Any:
    """Return the strategy that has copied a variable to its replicas, if it has hooks."""
    value = getattr(variable, "value", None)
    if not isinstance(value, values.DistributedVariable):
        return None
    strategy = value.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def is_chief(model: Any) -> bool:
    """Whether this is the worker that writes files and prints, if a model has several workers."""
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    return hooks is None or hooks.is_chief


def warn_of_other_model(model: keras.Model) -> None:
    """Warn, once, of a model that trains on one device beside a strategy that nothing uses."""
    if hooks_of(model) is not None or model in _models:
        return
    unused = [strategy for strategy in _strategies if not strategy.is_used]
    if unused and (count := max(strategy.num_replicas_in_sync for strategy in unused)) > 1:
        _models.add(model)
        _logger.warning(
            f"kdist: the model {model.name!r} trains on one device, although a strategy of {count}"
            f" replicas was made: it {OUTSIDE_OF_SCOPE}"
        )


def check_optimizer(model: keras.Model) -> None:
    """Check that the optimizer of a model without a strategy of kdist has none, either.

    Raises:
        UserError: The model was made outside the strategy's scope, and compiled inside.
    """
    optimizer = getattr(model, "optimizer", None)
    if isinstance(getattr(optimizer, "_distribution_strategy", None), StrategyHooks):
        raise UserError(f"the model {model.name!r} {OUTSIDE_OF_SCOPE}")
