"""`Evidence`: a training that differs, and the experiments that show why."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from .. import _upstream
from ..distribute.mirrored_strategy import MirroredStrategy
from .batches import Batches
from .comparison import AFTER_TRAINING, Difference, compare
from .precision import Precision, keras_in
from .record import Record
from .step_graph import StepGraph, trace_step
from .training import Plan, Trained, kdist_strategy, make_model, rounded_training, train


class Evidence:
    """What is known of a model that differs on several replicas.

    Args:
        plan: What all trainings have in common.
        one: The training on one replica of stock Keras.
        received: The first training on several replicas that differs or has failed.
        differences: What differs in it.
        precision: The floats that the model computes in.
    """

    def __init__(
        self,
        plan: Plan,
        one: Trained,
        received: Trained,
        differences: list[Difference],
        precision: Precision,
    ) -> None:
        self.plan = plan
        self.one = one
        self.received = received
        self.differences = differences
        self.precision = precision

    @property
    def replicas(self) -> int:
        """Replicas of the training that differs."""
        return self.received.record.replicas

    @property
    def in_training(self) -> list[Difference]:
        """What differs in training, before the model is evaluated."""
        return [d for d in self.differences if d.kind not in AFTER_TRAINING]

    @functools.cached_property
    def again(self) -> list[Difference]:
        """What differs between two trainings on one replica."""
        second = train(self.plan, name="one replica again", scored=False)
        return compare(self.one.record, second.record, self.precision)

    @functools.cached_property
    def rounded(self) -> Record:
        """The training on one replica from weights that were changed by a rounding error."""
        return rounded_training(self.plan, self.precision, scored=self.one.record.is_scored)

    @functools.cached_property
    def beyond_rounding(self) -> list[Difference]:
        """The differences that are more than what rounding grows to on one replica."""
        return compare(self.one.record, self.received.record, self.precision, self.rounded)

    @functools.cached_property
    def is_built_alike(self) -> bool:
        """Whether `build`, called twice after the same seed, makes the same initial weights."""
        weights = []
        with keras_in(self.plan.asked):
            for _ in range(2):
                keras.utils.set_random_seed(self.plan.seed)
                model = make_model(self.plan)
                _build_weights(model, self.plan.batches)
                weights.append(model.get_weights())
        return len(weights[0]) == len(weights[1]) and all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(*weights, strict=True)
        )

    @functools.cached_property
    def shared_parts(self) -> list[Any]:
        """What has variables and is in the models of two calls of `build`: made once, outside."""
        try:
            with keras_in(self.plan.asked):
                first, second = (_parts_of(self.plan.build()) for _ in range(2))
        except Exception:  # as the part belongs to the first model
            return []
        known = set(map(id, second))
        return [part for part in first if id(part) in known and part.variables]

    def differences_with(self, change: Callable[[keras.Model], None]) -> list[Difference] | None:
        """Train with a change on several replicas and on one, and return what then differs.

        Args:
            change: Changes the compiled model.

        Returns:
            The differences; `None` if a training fails with the change.
        """
        scored = not self.in_training
        several = train(
            self.plan, self.strategy(), name="several, changed", change=change, scored=scored
        )
        one = train(self.plan, name="one, changed", change=change, scored=scored)
        if several.record.error or one.record.error:
            return None
        return compare(one.record, several.record, self.precision)

    def strategy(self) -> MirroredStrategy:
        """A strategy on as many replicas as the training that differs."""
        return kdist_strategy(self.replicas, on_cpu=self.plan.on_cpu)

    @functools.cached_property
    def traces(self) -> tuple[StepGraph, StepGraph] | None:
        """Two traces of the training step on one replica; `None` if it cannot be traced."""
        model = self.one.model
        if not self._is_trained:
            return None
        try:
            with keras_in(self.plan.asked):
                batch = self.plan.batches.rows(0, self.plan.batches.batch_size)
                return trace_step(model, batch), trace_step(model, batch)
        except Exception:  # a step that is no method, or takes batches of one size only
            return None

    @property
    def _is_trained(self) -> bool:
        return self.one.model is not None and not self.one.record.error


def _parts_of(model: keras.Model) -> list[Any]:
    return [
        model,
        *_upstream.flatten_layers(model),
        *_upstream.optimizers_of(model),
        *model.metrics,
    ]


def _build_weights(model: keras.Model, batches: Batches) -> None:
    """Make the weights of a model that makes them with its first batch."""
    if not model.built and _upstream.has_call(model):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batches.rows(0, 1))
        model(x)
