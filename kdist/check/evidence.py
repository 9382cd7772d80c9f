"""`Evidence`: a training that differs, and the experiments that show why."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import numpy as np

from .. import _upstream
from ..distribute.mirrored_strategy import MirroredStrategy
from .batches import Batches
from .comparison import AFTER_TRAINING, Difference, compare
from .functional_operations import mixing_operation
from .layer_calls import (
    LayerCall,
    Mixing,
    gap_of_halves,
    kept_variables,
    mixing_layers,
    observe_calls,
)
from .precision import Precision, keras_in
from .record import Kind, Record
from .step_graph import StepGraph, trace_step
from .training import Plan, Trained, kdist_strategy, make_model, rounded_training, train

# What a second trace or a half of the batch may change in float64 is far below, what a mistake
# changes far above.
_FACTOR = 10.0


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
    def first(self) -> Difference | None:
        """The first difference; `None` if there is none."""
        return self.differences[0] if self.differences else None

    @property
    def first_kinds(self) -> set[Kind]:
        """What differs in the first step that differs."""
        first = self.first
        return {d.kind for d in self.differences if first and d.step == first.step}

    @property
    def in_training(self) -> list[Difference]:
        """What differs in training, before the model is evaluated."""
        return [d for d in self.differences if d.kind not in AFTER_TRAINING]

    def warned(self, text: str) -> list[str]:
        """Warnings of kdist with a text."""
        return [one for one in self.received.record.warnings if text in one]

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

    def differences_with(
        self, change: Callable[[keras.Model], None], *, on_one: bool = True
    ) -> list[Difference] | None:
        """Train with a change on several replicas and on one, and return what then differs.

        Args:
            change: Changes the compiled model.
            on_one: Whether the model on one replica is changed, too.

        Returns:
            The differences; `None` if a training fails with the change.
        """
        scored = not self.in_training
        several = train(
            self.plan, self.strategy(), name="several, changed", change=change, scored=scored
        )
        one = self.one
        if on_one:
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
        size = self.plan.batches.batch_size
        return self._traced(size, size)

    @functools.cached_property
    def traces_of_sizes(self) -> tuple[StepGraph, StepGraph] | None:
        """The step traced for half a batch and for a whole one."""
        half = max(1, self.plan.batches.batch_size // 2)
        return self._traced(half, 2 * half)

    def _traced(self, first: int, second: int) -> tuple[StepGraph, StepGraph] | None:
        model = self.one.model
        if not self._is_trained:
            return None
        try:
            with keras_in(self.plan.asked):
                rows = self.plan.batches.rows
                return trace_step(model, rows(0, first)), trace_step(model, rows(0, second))
        except Exception:  # a step that is no method, or takes batches of one size only
            return None

    @functools.cached_property
    def calls(self) -> list[LayerCall]:
        """The calls of the model and all layers in an eager training step on one replica."""
        model, batches = self.one.model, self.plan.batches
        if not self._is_trained:
            return []
        try:
            with keras_in(self.plan.asked), kept_variables(model):
                return observe_calls(
                    model, lambda: model.train_step(batches.rows(0, batches.batch_size))
                )
        except Exception:  # a step that only runs in a graph
            return []

    @functools.cached_property
    def mixing(self) -> list[Mixing]:
        """Layers whose result for a sample depends on the other samples of the batch."""
        size = self.plan.batches.batch_size
        with keras_in(self.plan.asked):
            return mixing_layers(
                self.one.model, self.calls, size, _FACTOR * self.precision.weights_tolerance
            )

    def mixing_operation(self, mixing: Mixing) -> str:
        """The function of `keras.ops` between the layers of a model that mixes the samples.

        Args:
            mixing: The model; empty if it has no such function.
        """
        size, tolerance = self.plan.batches.batch_size, _FACTOR * self.precision.weights_tolerance
        with keras_in(self.plan.asked), kept_variables(self.one.model):
            return mixing_operation(mixing.call, size, tolerance)

    def gap_of_halves(self, names: Sequence[str]) -> float:
        """By how much the rows of layers change if they get half of a batch; 0 if by rounding.

        Args:
            names: Of the layers.
        """
        calls = [call for call in self.calls if call.layer.name in names]
        if not calls:
            return 0.0
        with keras_in(self.plan.asked), kept_variables(self.one.model):
            gap = max(gap_of_halves(call, self.plan.batches.batch_size) for call in calls)
        return gap if gap > _FACTOR * self.precision.weights_tolerance else 0.0

    @functools.cached_property
    def loss_kind(self) -> Literal["", "mean", "sum", "neither"]:
        """What the loss of two halves of a batch makes of that of the whole: mean, sum, neither.

        Empty if it cannot be told: the step logs no loss, draws random numbers, or has layers that
        mix the samples.
        """
        if self.mixing:
            return ""
        whole, same = self._loss(0, 1), self._loss(0, 1)
        first, second = self._loss(0, 0.5), self._loss(0.5, 1)
        if whole is None or first is None or second is None or whole != same:
            return ""
        limit = self.precision.metrics_tolerance * max(1.0, abs(whole))
        if abs(whole - (first + second) / 2) <= limit:
            return "mean"
        return "sum" if abs(whole - first - second) <= limit else "neither"

    @functools.cached_property
    def changes_when_repeated(self) -> bool:
        """Whether a step gives another loss, repeated from the same variables and seed."""
        keras.utils.set_random_seed(self.plan.seed)
        first = self._loss(0, 1)
        keras.utils.set_random_seed(self.plan.seed)
        second = self._loss(0, 1)
        return first is not None and first == first and first != second  # not of NaN

    def _loss(self, start: float, stop: float) -> float | None:
        model, size = self.one.model, self.plan.batches.batch_size // 2 * 2
        if not self._is_trained or size < 2:
            return None
        rows = self.plan.batches.rows(int(start * size), int(stop * size))
        try:
            with keras_in(self.plan.asked), kept_variables(model):
                model.reset_metrics()
                return float(model.train_step(rows)["loss"])
        except Exception:  # it logs none, or only runs in a graph
            return None

    @property
    def _is_trained(self) -> bool:
        return self.one.model is not None and not self.one.record.error

    def name_of(self, layer: keras.layers.Layer) -> str:
        """The name that a layer of the training that differs has on one replica."""
        layers = _upstream.flatten_layers(self.received.model)
        alike = _upstream.flatten_layers(self.one.model)
        names = [one.name for here, one in zip(layers, alike, strict=False) if here is layer]
        return str(next(iter(names), layer.name))

    def has_custom_step(self) -> bool:
        """Whether the model has a `train_step` of the user's."""
        return self.one.model is not None and bool(_upstream.overridden_steps(self.one.model))


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
