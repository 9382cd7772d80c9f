"""The recorded values of training runs, and the first differences between two runs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

Level = Literal["bits", "float64", "float32", "float16"]
# In the order of computation within a step: an earlier difference causes later differences.
Kind = Literal[
    "initial weights", "loss", "state", "weights", "optimizer", "metric", "copies", "evaluate",
    "predictions",
]  # fmt: skip
# Step from 1; kind; name of the value. Variables have an index among the variables of their kind
# instead of a name: Keras numbers layer names in the order in which a program makes the layers.
Item = tuple[int, Kind, str | int]
STOCK_KERAS = "one replica of stock Keras"
_KINDS_BY_NAME = ("loss", "metric", "evaluate")
# A sample of larger variables is compared, so that the steps of a large model fit into memory.
_MOST_VALUES = 2**16
# A run whose initial weights are changed by rounding shows the effect of rounding on the results: a
# difference of at most this multiple of the effect counts as equal.
_ROUNDING_FACTOR = 20.0
# Metrics may add up in float32, whatever the model's precision.
_METRIC_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Precision:
    """The lowest precision that a model computes in, and the tolerances for rounding.

    The level `"float16"` includes bfloat16, `"bits"` permits no difference. `reason` says why the
    level is not float64.
    """

    level: Level = "float64"
    reason: str = ""

    @property
    def tolerance(self) -> float:
        """Tolerance: absolute for values up to 1, relative for larger values."""
        return {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}[self.level]

    @property
    def movement_tolerance(self) -> float:
        """Tolerance for weights, relative to their total movement during training."""
        return {"float64": math.inf, "float32": 1e-3, "float16": 0.1}[self.level]

    @property
    def rounding_step(self) -> float:
        """Relative change of the initial weights that simulates rounding."""
        return {"float64": 2.0**-44, "float32": 2.0**-22, "float16": 2.0**-9}[self.level]

    def __str__(self) -> str:
        if self.level == "bits":
            return "'equal' means equal in every bit"
        meaning = f"'equal' means within {self.tolerance:g}"
        if self.level == "float64":
            return f"float64, {meaning}, for metrics within {_METRIC_TOLERANCE:g}"
        return (
            f"{self.level} ({self.reason}), {meaning}, for weights within"
            f" {self.movement_tolerance:g} of their movement, or within {_ROUNDING_FACTOR:g} times"
            " the effect of rounding on one replica"
        )


@dataclasses.dataclass(kw_only=True)
class Record:
    """The record of a training run.

    Attributes:
        name: Description of the run, such as `2 replicas`.
        values: The computed values, in order.
        names: Names of the values, by kind and key.
        error: The error of a failed run as a line; empty if the run succeeded.
        message: The whole text of the error.
        notes: Descriptions of values that could not be compared.
    """

    name: str
    values: dict[Item, Any] = dataclasses.field(default_factory=dict)
    names: dict[tuple[Kind, str | int], str] = dataclasses.field(default_factory=dict)
    error: str = ""
    message: str = ""
    model: Any = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, step: int, kind: Kind, named: dict[str, Any]) -> None:
        """Add numbers and arrays by name."""
        for index, (name, value) in enumerate(named.items()):
            key = name if kind in _KINDS_BY_NAME else index
            self.names[kind, key] = name
            self.values[step, kind, key] = _sample_values(value)

    def values_of_kind(self, kind: Kind) -> dict[str, Any]:
        """Return the values of a kind by name; the last step replaces earlier steps."""
        return {
            self.names[value_kind, key]: value
            for (_, value_kind, key), value in self.values.items()
            if value_kind == kind
        }


def _sample_values(value: Any) -> Any:
    """Return a float64 copy of an array; of a large array, a sample and its mean."""
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        return array.copy()
    array = array.astype("complex128" if array.dtype.kind == "c" else "float64")
    if array.size <= _MOST_VALUES:
        return array
    flat = array.reshape(-1)
    return np.append(flat[:: -(-flat.size // _MOST_VALUES)], flat.mean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A value that differs from the value on one replica.

    Attributes:
        step: First step with a difference, from 1; 0 for the initial weights.
        kind: Loss, weights, …
        name: Name of the value, such as the path of a variable.
        gap: Largest absolute difference at `step`. Infinite if the shapes differ, or if an element
            is finite in only one of the runs.
        largest: Largest gap at any step.
        tolerance: Largest difference that rounding explains.
    """

    step: int
    kind: Kind
    name: str
    gap: float
    largest: float
    tolerance: float

    def __str__(self) -> str:
        kind = "" if self.kind == "loss" else f"{self.kind} "
        size = f"off by {self.gap:.1g}" if math.isfinite(self.gap) else "NaN or a different shape"
        return f"{kind}{self.name}: {size} (rounding explains up to {self.tolerance:.0e})"


def compare(
    expected: Record, received: Record, precision: Precision, rounded: Record | None = None
) -> list[Difference]:
    """Return differences that exceed rounding, in order of computation.

    The initial weights of the run `rounded` differ from `expected` by rounding.
    """
    found: dict[tuple[Kind, str | int], Difference] = {}
    start = expected.values_of_kind("initial weights")
    rounded_start = {} if rounded is None else rounded.values_of_kind("initial weights")
    # Stock Keras builds a model of unknown input shape at the first step, after the initial
    # weights.
    is_built = len(start) == len(received.values_of_kind("initial weights"))
    for item, value in expected.values.items():
        step, kind, key = item
        other = received.values.get(item)
        if (other is None and received.error) or (kind == "initial weights" and not is_built):
            continue
        name = expected.names[kind, key]
        gap = largest_gap(value, other)
        moved = _weight_change(expected, item, start)
        limit = _rounding_limit(step, kind, value, moved, precision)
        if rounded is not None and kind != "initial weights":
            limit = max(
                limit,
                _ROUNDING_FACTOR * largest_gap(moved, _weight_change(rounded, item, rounded_start)),
            )
        known = found.get((kind, key))
        if known is not None:
            found[kind, key] = dataclasses.replace(known, largest=max(known.largest, gap))
        elif not gap <= limit:
            found[kind, key] = Difference(
                step=step, kind=kind, name=name, gap=gap, largest=gap, tolerance=limit
            )
    return list(found.values())


def _weight_change(record: Record, item: Item, start: dict[str, Any]) -> Any:
    """Return the change of a weight since the start of training; else the value itself."""
    _, kind, key = item
    value = record.values.get(item)
    first = start.get(record.names.get((kind, key), "")) if kind == "weights" else None
    return value if first is None or largest_gap(value, first) == math.inf else value - first


def _rounding_limit(step: int, kind: Kind, value: Any, moved: Any, precision: Precision) -> float:
    if value.dtype.kind not in "fc" or precision.level == "bits":
        return 0.0
    size = _largest_magnitude(value)
    is_metric = kind in _KINDS_BY_NAME  # Keras rounds constants to float32
    limit = max(size, 1.0) * max(precision.tolerance, _METRIC_TOLERANCE if is_metric else 0.0)
    if kind == "weights" and precision.level != "float64":
        rounding = precision.rounding_step * size * step
        limit = min(limit, precision.movement_tolerance * _largest_magnitude(moved) + rounding)
    return limit


def _largest_magnitude(value: Any) -> float:
    return float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0))


def largest_gap(value: Any, other: Any) -> float:
    """Return the largest absolute difference of two arrays."""
    if value is None or other is None or value.shape != other.shape:
        return math.inf
    if value.dtype.kind not in "fc":
        return 0.0 if np.array_equal(value, other) else math.inf
    finite = np.isfinite(value)
    if not np.array_equal(finite, np.isfinite(other)):
        return math.inf
    return float(np.max(np.abs(value[finite] - other[finite]), initial=0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of `kdist.check_model`, for `print`.

    Attributes:
        differences: For each run on several replicas, by name: differences from one replica, each
            with `step`, `kind`, `name`, `gap` and `largest`.
        errors: Errors of failed runs, by name of the run.
        unrepeatable: Differences between two runs on one replica; if there are any, a comparison is
            impossible.
        precision: The precision of the computation, and the meaning of `equal`, in words.
        steps: Samples of each step of an epoch, and the number of epochs, in words.
        notes: Descriptions of values that were not compared.
        reference: Description of the run on one replica.
    """

    differences: dict[str, Sequence[Difference]]
    errors: dict[str, str]
    unrepeatable: Sequence[Difference]
    precision: str
    steps: str
    notes: Sequence[str] = ()
    reference: str = STOCK_KERAS

    @property
    def equal(self) -> bool:
        """Whether all runs are equal to the run on one replica, except for rounding."""
        return not (self.errors or self.unrepeatable or any(self.differences.values()))

    def assert_equal(self) -> None:
        """Raise `AssertionError` with the printed result, unless the runs are equal."""
        if not self.equal:
            raise AssertionError(f"the runs differ from the run on one replica\n{self}")

    def __str__(self) -> str:
        lines = [f"{'equal' if self.equal else 'NOT EQUAL'} to {self.reference}"]
        lines += [f"  {self.steps}; {self.precision}"]
        if self.unrepeatable:
            lines += _difference_lines("two runs on one replica differ", self.unrepeatable)
            lines.append("    so replicas cannot be compared; perhaps a random draw has no seed")
        for name, found in self.differences.items():
            if name in self.errors:
                lines.append(f"  {name}: fails: {self.errors[name]}")
            elif found and not self.unrepeatable:
                lines += _difference_lines(f"{name}: differs", found)
            elif not found:
                lines.append(f"  {name}: equal")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _difference_lines(title: str, found: Sequence[Difference]) -> list[str]:
    first = [difference for difference in found if difference.step == found[0].step][:3]
    begin = f"step {found[0].step}" if found[0].step else "the start"
    more = len(found) - len(first)
    lines = [f"  {title} from {begin} on", *(f"    {difference}" for difference in first)]
    if more:
        lines.append(
            f"    and {more} more, by up to {max(difference.largest for difference in found):.1g}"
        )
    return lines
