"""What the patches of Keras ask a strategy."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import keras
import tensorflow as tf


@dataclass
class AutoSteps:
    """What `compile(steps_per_execution="auto")` has chosen for a model."""

    chosen: dict[int | None, int] | None = None
    """Steps per execution by the global batch; `None` for a model that was not compiled so."""
    is_evaluating: bool = False
    """Whether an evaluation or a prediction is under way, which takes one step an execution."""


class StrategyHooks(abc.ABC):
    """The hooks of a strategy that the patches call.

    Under any other strategy every patch does what stock Keras does.
    """

    draws: Literal["by_place", "per_replica"]
    """Whether draws follow the sample's place in the global batch, or each replica has its own."""

    @property
    @abc.abstractmethod
    def automatic_xla(self) -> bool:
        """Whether `model.compile(jit_compile="auto")`, Keras's default, may mean XLA."""

    @abc.abstractmethod
    def reset(self, model: keras.Model) -> None:
        """Forget what holds for a model as it was compiled: it is about to be compiled anew."""

    @abc.abstractmethod
    def prepare(self, model: keras.Model, *, global_batch: int | None = None) -> None:
        """Make ready a model that is about to be trained or evaluated.

        Called before Keras builds the optimizer and traces its step.

        Args:
            model: The model.
            global_batch: Samples in a full batch of all replicas, where that is known.
        """

    @abc.abstractmethod
    def epoch_ended(self, model: keras.Model) -> None:
        """Look at what an epoch of training or evaluation has left on the replicas."""

    @abc.abstractmethod
    def auto_steps(self, model: keras.Model) -> AutoSteps:
        """What `compile(steps_per_execution="auto")` has chosen for a model."""

    @abc.abstractmethod
    def steps_per_execution(self, model: keras.Model, global_batch: int | None) -> int:
        """What `compile(steps_per_execution="auto")` means for batches of this size.

        Args:
            model: A model made in the strategy's scope.
            global_batch: Samples of a step, over all replicas; `None` where that is not known.
        """

    @abc.abstractmethod
    def fused_dropout(
        self, inputs: Any, rate: Any, noise_shape: Any
    ) -> Callable[[Any, Any], Any] | None:
        """A faster dropout of these inputs, a function of seed and row blocks.

        `None` where Keras's own is to compute it.
        """


def hooks_of(model: keras.Model) -> StrategyHooks | None:
    """The strategy that a model is trained under, where it has hooks."""
    strategy = model.distribute_strategy
    return strategy if isinstance(strategy, StrategyHooks) else None


def replica_hooks() -> StrategyHooks | None:
    """The strategy whose replica this thread computes, where it has hooks."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(context.strategy, StrategyHooks):
        return None
    return context.strategy
