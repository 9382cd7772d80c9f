"""`StrategyHooks`: the methods of a strategy of kdist that the patches call."""

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from ..errors import UserError

OUTSIDE_OF_SCOPE = (
    "was made outside the strategy's scope, so its variables are on one device only: create the"
    " model in strategy.build(lambda: ...), or inside `with strategy.scope():`"
)
_logger = logging.getLogger("kdist")
_strategies: weakref.WeakSet[Any] = weakref.WeakSet()
_warned_models: weakref.WeakSet[Any] = weakref.WeakSet()  # models that a warning was about


class StepWatch:
    """Receives the calls and steps of a worker; this base class ignores them.

    `HangWatch` (`workers/hang_detection.py`) ends a worker whose step does not end. The `with`
    blocks of these methods tell what the worker does:

    * `watch`: the worker runs `fit`, `evaluate` or `predict`.
    * `slow`: the worker does slow work, such as saving.
    * `waiting`: the worker waits for all workers to reach an event.
    """

    def _ignore(self, _: str, /) -> AbstractContextManager[None]:
        return nullcontext()

    watch = slow = waiting = _ignore

    def step_began(self) -> None:
        """Record the start of a step."""

    def step_ended(self) -> None:
        """Record the end of a step."""

    def record_trace(self) -> None:
        """Record that the current step is traced."""

    def is_other_slow(self) -> bool:
        """Whether another worker has reported slow work."""
        return False


class StrategyHooks:
    """Base class of kdist's strategies; `StrategyHooks()` stands in for a missing strategy.

    Under other strategies most patches do nothing: see `docs/design/keras-patches.md`. Patches also
    call these methods, which `strategies/exact_strategy.py` defines. For a model:

    * `prepare(model, global_batch=None)`: called before Keras builds the optimizer and traces its
      step. An optimizer or metric that was created outside the scope gets a copy on every replica;
      a model that was created outside the scope raises `UserError`.
    * `is_prepared(model)`: whether the model and its steps have not changed since `prepare`.
    * `model_state(model)`: the `ModelState` that the strategy stores.
    * `reset(model)`: resets this state, before the model is compiled again.
    * `equalize_copies(handles)`: gives the copies of variables the value of the first copy, after a
      failed step. `handles` are the tensors that the failed function captures, for a variable the
      handle of its first copy.
    * `automatic_xla(is_supported)`: the value of `jit_compile="auto"`, Keras's default: true on one
      GPU. On several GPUs XLA compiles only the random draws, for the same numbers as on one GPU:
      XLA and TensorFlow draw different numbers.
    * `steps_per_execution(model, global_batch)`: the value of `steps_per_execution="auto"`.

    In a step:

    * `check_constant(numbers, constant)`: warns of a constant that was computed outside the step
      from the number of replicas.
    * `batch_norm(layer, inputs)`: computes a batch norm in training mode; `None` if Keras has to.
    * `rematerialize(fn)`: a function with the results of `fn`, whose gradient recomputes `fn`.
    """

    step_watch = StepWatch()
    """Receives this worker's steps."""
    workers: int = 1
    """Number of workers: processes that train one model together."""
    worker: int = 0
    """The number of this worker; the chief is worker 0."""
    is_used: bool = False
    """Whether a model or a step of the user has run under this strategy."""

    def register(self) -> None:
        """Register this strategy for `warn_of_model_outside_scope`."""
        _strategies.add(self)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes files and prints; true for a single worker."""
        return self.worker == 0

    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` if the workers differ in a value, or are at different events."""

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the JSON-compatible values of all workers, the chief's value first."""
        del event
        return [value]


def hooks_of(model: keras.Model) -> Any:
    """Return the strategy of a model if it has hooks; otherwise `None`."""
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def is_chief(model: Any) -> bool:
    """Whether this worker writes files and prints; true if a model has a single worker."""
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    return hooks is None or hooks.is_chief


def warn_of_model_outside_scope(model: keras.Model) -> None:
    """Warn once if a model trains on one device, while a strategy of several replicas is unused."""
    if hooks_of(model) is not None or model in _warned_models:
        return
    unused = [strategy for strategy in _strategies if not strategy.is_used]
    if unused and (count := max(strategy.num_replicas_in_sync for strategy in unused)) > 1:
        _warned_models.add(model)
        _logger.warning(
            f"kdist: the model {model.name!r} trains on one device, although a strategy of {count}"
            f" replicas was made: the model {OUTSIDE_OF_SCOPE}"
        )


def check_optimizer(model: keras.Model) -> None:
    """Reject an optimizer of kdist's strategy in a model that is not under this strategy."""
    optimizer = getattr(model, "optimizer", None)
    if isinstance(getattr(optimizer, "_distribution_strategy", None), StrategyHooks):
        raise UserError(
            "received an optimizer that was made in a strategy's scope, but the model"
            f" {model.name!r} {OUTSIDE_OF_SCOPE}"
        )


def equalize_copies(handles: Sequence[Any]) -> None:
    """Give the copies of the variables of every strategy the value of the first copy."""
    for strategy in list(_strategies):
        strategy.equalize_copies(handles)
