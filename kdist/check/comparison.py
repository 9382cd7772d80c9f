"""Compare two trainings: what differs by more than rounding, by how much, from which step on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .precision import Precision
from .record import Item, Kind, Record

# What a change of the last digits of the initial weights may grow to is no difference, times this.
_ROUNDING_FACTOR = 20.0
AFTER_TRAINING: tuple[Kind, ...] = ("evaluate", "predictions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A quantity that is not that of one replica.

    Attributes:
        where: The training that differs, such as `2 replicas`.
        replicas: Its number of replicas.
        step: The first step at which it differs, from 1; 0 before the first.
        kind: What differs: loss, weights, …
        name: Its name, such as the path of a variable.
        index: Among those of its kind.
        layer: The layer of a variable; empty for others.
        gap: The largest absolute difference at that step.
        tolerance: What rounding may make of it.
        largest: The largest absolute difference at any step.
    """

    where: str
    replicas: int
    step: int
    kind: Kind
    name: str
    index: int
    layer: str
    gap: float
    tolerance: float
    largest: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """One training, compared with that on one replica of stock Keras.

    Attributes:
        name: What trained, such as `2 replicas of kdist`.
        differences: What differs, in the order in which it was computed.
        error: Why the training failed, in a line; empty if it did not.
        is_noted: Whether a note explains what differs, so that it is no fault.
    """

    name: str
    differences: Sequence[Difference] = ()
    error: str = ""
    is_noted: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether it has trained, and nothing differs."""
        return not self.differences and not self.error


def compare(
    expected: Record, received: Record, precision: Precision, rounded: Record | None = None
) -> list[Difference]:
    """Return what differs by more than rounding, in the order in which it was computed.

    Args:
        expected: The training on one replica.
        received: Another training.
        precision: Says how much rounding may differ.
        rounded: The training on one replica from initial weights that differ by rounding: what it
            makes of them is no difference either.
    """
    found: dict[tuple[Kind, int], Difference] = {}
    # Stock Keras leaves it to the first step to build a model that does not know its input's shape.
    is_built = _initial_weights(expected) >= _initial_weights(received)
    for item in sorted(expected.values.keys() | received.values.keys(), key=lambda i: i.order):
        if item.step > received.last_step and received.error:
            continue  # it ended before
        if item.kind == "initial weights" and not is_built:
            continue
        if item.kind in AFTER_TRAINING and not (expected.is_scored and received.is_scored):
            continue
        one, other = expected.values.get(item), received.values.get(item)
        difference = gap(one, other)
        limit = _limit(expected, received, item, precision, rounded)
        known = found.get((item.kind, item.index))
        if known is not None:
            if difference > known.largest:
                found[item.kind, item.index] = dataclasses.replace(known, largest=difference)
        elif not difference <= limit:
            found[item.kind, item.index] = _difference(expected, received, item, difference, limit)
    return sorted(found.values(), key=lambda d: Item(d.step, d.kind, d.index).order)


def _limit(
    expected: Record, received: Record, item: Item, precision: Precision, rounded: Record | None
) -> float:
    """How far rounding may take a value."""
    value: Any = expected.values.get(item)
    limit = tolerance(value, item.kind, precision)
    grown = 0.0
    if rounded is not None and item in rounded.values:
        grown = gap(value, rounded.values[item])
    movement = _movement(expected, item, received)
    if precision.level != "float64" and movement is not None:
        # Each step rounds the sum of a weight and its update.
        rounding = precision.weights_epsilon * float(np.max(np.abs(value), initial=0)) * item.step
        moved = float(np.max(np.abs(movement), initial=0.0))
        limit = min(limit, precision.movement_tolerance * moved + rounding)
        other = None if rounded is None else _movement(rounded, item)
        if other is not None:
            grown = max(0.0, gap(movement, other) - rounding)
    return max(limit, _ROUNDING_FACTOR * grown)


def _movement(record: Record, item: Item, other: Record | None = None) -> Any:
    """What training has added to a weight until a step; `None` for other items.

    Args:
        record: A training.
        item: Of it.
        other: Has the initial weights if stock Keras made those of `record` in the first step.
    """
    value = record.values.get(item)
    if item.kind != "weights" or value is None or not np.all(np.isfinite(value)):
        return None
    name = record.name_of(item)
    for one in (record, other):
        names = [] if one is None else one.names.get("initial weights", [])
        if one is not None and name in names:
            start = one.values[Item(0, "initial weights", names.index(name))]
            return value - start if start.shape == value.shape else None
    return None


def _initial_weights(record: Record) -> int:
    return len(record.names.get("initial weights", ()))


def _difference(
    expected: Record, received: Record, item: Item, difference: float, limit: float
) -> Difference:
    name = (expected if item in expected.values else received).name_of(item)
    return Difference(
        where=received.name,
        replicas=received.replicas,
        step=item.step,
        kind=item.kind,
        name=name,
        index=item.index,
        layer=expected.layers.get(name, ""),
        gap=difference,
        tolerance=limit,
        largest=difference,
    )


def tolerance(value: Any, kind: Kind, precision: Precision) -> float:
    """Return how far rounding may take a value: absolute up to 1, relative above."""
    array = np.asarray(value) if value is not None else np.zeros(1)
    if array.dtype.kind not in "biufc" or not array.size:
        return 0.0
    finite = np.abs(array[np.isfinite(array)])
    scale = float(np.max(finite, initial=1.0))
    is_metric = kind in ("loss", "metric", "evaluate")
    return scale * (precision.metrics_tolerance if is_metric else precision.weights_tolerance)


def gap(one: Any, other: Any) -> float:
    """Return the largest absolute difference of two arrays.

    It is infinite if their shapes differ or a value is finite in only one of them.
    """
    if one is None or other is None:
        return float("inf")
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return float("inf")
    if one.dtype.kind not in "biufc":
        return 0.0 if np.array_equal(one, other) else float("inf")
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    return float(np.max(np.abs(one[finite] - other[finite]), initial=0.0))
