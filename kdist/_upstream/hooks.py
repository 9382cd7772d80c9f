"""`StrategyHooks`: the interface of the patches to a strategy."""

import abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import tensorflow as tf
from tensorflow.python.distribute import values


@dataclass
class AutoSteps:
    """The choice of `compile(steps_per_execution="auto")` for a model."""

    chosen: dict[int | None, int] | None = None
    """Steps per execution by global batch; `None` if the model was not compiled with "auto"."""
    is_evaluating: bool = False
    """Whether the model is evaluating or predicting, with one step per execution."""


class Progress(Protocol):
    """Is notified of the steps of a worker, to find one that hangs."""

    def watch(self, activity: str) -> AbstractContextManager[None]:
        """Inside the `with` block, the worker is in `fit`, `evaluate` or `predict`."""

    def watch_step(self, activity: str) -> AbstractContextManager[None]:
        """Inside the `with` block, the worker is in a step that the user's own loop calls."""

    def slow(self, what: str) -> AbstractContextManager[None]:
        """Inside the `with` block, the worker does what may take long, such as saving."""

    def step_began(self) -> None:
        """A step begins."""

    def step_ended(self) -> None:
        """A step has ended."""


class StrategyHooks(abc.ABC):
    """Base class of a strategy with hooks for the patches.

    Under any other strategy, every patch does what stock Keras does.
    """

    progress: Progress | None = None
    """Is notified of the steps of this worker; `None` if nothing is."""

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """Number of workers: processes that train one model together."""

    @property
    @abc.abstractmethod
    def worker(self) -> int:
        """The number of this worker; the chief is worker 0."""

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes files and prints; true if there is only one."""
        return self.worker == 0

    @abc.abstractmethod
    def automatic_xla(self, is_supported: bool) -> Any:
        """Return what `jit_compile="auto"`, Keras's default, is: false if XLA stays off.

        Args:
            is_supported: Whether all layers of the model support XLA.
        """

    @abc.abstractmethod
    def reset(self, model: keras.Model) -> None:
        """Reset what is stored for a model that is about to be compiled again."""

    @abc.abstractmethod
    def prepare(self, model: keras.Model) -> None:
        """Prepare a model that is about to be trained or evaluated.

        Called before Keras builds the optimizer and traces its step.

        Args:
            model: The model.
        """

    @abc.abstractmethod
    def compare_workers(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise an error if the workers differ in any value, or are doing different things.

        Args:
            event: What this worker is doing, such as `fit`.
            values: By name, anything that JSON can hold.
        """

    @abc.abstractmethod
    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first."""

    @abc.abstractmethod
    def auto_steps(self, model: keras.Model) -> AutoSteps:
        """Return what `compile(steps_per_execution="auto")` has chosen for a model."""

    @abc.abstractmethod
    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """Choose the value of `steps_per_execution="auto"` for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples per step, over all replicas; `None` if unknown.
        """

    @abc.abstractmethod
    def fused_dropout(
        self, inputs: Any, rate: Any, noise_shape: Any
    ) -> Callable[[Any], Any] | None:
        """Return a faster dropout of these inputs, a function of the seed.

        Returns `None` to use Keras's own dropout.
        """

    @abc.abstractmethod
    def fused_activation(
        self, function: Callable[..., Any], inputs: Any, *arguments: Any, **options: Any
    ) -> Any:
        """Return what Keras's activation returns, computed faster; `None` to use Keras's own."""


class FitObserver(abc.ABC):
    """A callback that sees a whole fit: all its callbacks, and its end, whatever ends it."""

    @abc.abstractmethod
    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Called before the `on_train_begin` of every callback.

        Args:
            callbacks: The others, Keras's own too, in the order in which Keras calls them. The
                observer itself is called after them.
        """

    @abc.abstractmethod
    def fit_ended(self) -> None:
        """Called as `fit` returns or raises."""


def hooks_of(model: keras.Model) -> StrategyHooks | None:
    """Return the strategy of a model if it has hooks."""
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def hooks_of_copies(variable: Any) -> StrategyHooks | None:
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


def replica_hooks() -> StrategyHooks | None:
    """Return the strategy of the current replica context if it has hooks."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(context.strategy, StrategyHooks):
        return None
    return context.strategy
