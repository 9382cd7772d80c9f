"""`SearchSpace`: the settings to tune, as plain data."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import as_integer, as_real
from ..errors import UserError
from ..fields import Field, field_names, fields_of
from ..training.config import TrainConfig
from ..training.settings import Data, Execution, Model, Optimization

TUNABLE = (field_names(Data, Model, Optimization, Execution) | {"batch_size", "epochs"}) - {
    *("dataset", "subset"),  # all trials use the same data
    "seed",  # the best seed is only the luckiest
}
"""Settings that a search may vary."""

DEFAULT_SPACE: dict[str, Any] = {
    "base_lr": {"min": 0.001, "max": 0.05, "sampling": "log"},
    "batch_size": [16, 32, 64, 128],
    "optimizer": ["sgd", "momentum"],
    "schedule": ["constant", "cosine"],
    "wd": {"min": 1e-6, "max": 1e-3, "sampling": "log"},
    "dropout": {"min": 0.0, "max": 0.3, "step": 0.05},
    "label_smoothing": [0.0, 0.1],
}
"""The default space. Learning rates range from too small to diverging."""

_SAMPLINGS = ("linear", "log", "reverse_log")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `least` to `most`, both included; integers if `is_integer`."""

    least: float
    most: float
    step: float | None
    sampling: str
    is_integer: bool

    def values_to_check(self) -> Iterator[float]:
        """Yield both ends, and the second value of evenly spaced integers."""
        yield self.least
        if self.is_integer and self.sampling == "linear":
            yield min(self.least + (self.step or 1), self.most)
        yield self.most

    def declare(self, hp: Any, name: str) -> None:
        """Declare the range to KerasTuner's `HyperParameters`."""
        kind = hp.Int if self.is_integer else hp.Float
        kind(name, self.least, self.most, step=self.step, sampling=self.sampling)

    def decode(self, value: float) -> float:
        """Convert KerasTuner's value into a setting, rounded to six digits."""
        return value if self.is_integer else float(f"{value:.6g}")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A list of values."""

    values: tuple[Any, ...]

    def values_to_check(self) -> Iterator[Any]:
        """Iterate over all values."""
        return iter(self.values)

    @property
    def _is_encoded(self) -> bool:
        """Whether KerasTuner gets JSON: it takes values of a single type only."""
        return {type(value) for value in self.values} not in ({int}, {float}, {str})

    def declare(self, hp: Any, name: str) -> None:
        """Declare the choice to KerasTuner's `HyperParameters`."""
        hp.Choice(name, [json.dumps(v) if self._is_encoded else v for v in self.values])

    def decode(self, value: Any) -> Any:
        """Convert KerasTuner's value into the chosen value."""
        return json.loads(value) if self._is_encoded else value


class SearchSpace:
    """The settings of `TrainConfig` that a search varies, each with its choices or range.

    Args:
        ranges: For each setting a list of choices, or a mapping with `min` and `max` and optionally
            `step` and `sampling` (`"linear"`, `"log"`, `"reverse_log"`; with `"log"` a step is a
            factor), as `tomllib` and `json` read them.
        base: The settings that are not tuned.

    Raises:
        UserError: A setting cannot be tuned, or a value is invalid for a run.

    Example:
        >>> space = SearchSpace({"batch_size": [32, 64]}, base=TrainConfig())
        >>> space.dimensions["batch_size"]
        Choice(values=(32, 64))
    """

    def __init__(self, ranges: Mapping[str, Any], *, base: TrainConfig) -> None:
        fields = {field.name: field for field in fields_of(TrainConfig) if field.name in TUNABLE}
        wrong = sorted(set(ranges) - set(fields))
        if wrong or not ranges:
            problem = f"has {', '.join(wrong)}, which cannot be tuned" if wrong else "is empty"
            raise UserError(f"the search space {problem}: available are {', '.join(fields)}")
        self.dimensions = {name: _parse_dimension(fields[name], ranges[name]) for name in ranges}
        first = {name: next(iter(part.values_to_check())) for name, part in self.dimensions.items()}
        for name, part in self.dimensions.items():
            for value in part.values_to_check():
                try:
                    TrainConfig.from_dict({**base.to_dict(), **first, name: value})
                except UserError as error:
                    raise UserError(
                        f"the search space contains an invalid setting, {name} {value}: {error}"
                    ) from error

    def declare(self, hp: Any) -> None:
        """Declare the space to KerasTuner's `HyperParameters`."""
        for name, part in self.dimensions.items():
            part.declare(hp, name)

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert KerasTuner's values of a trial into settings."""
        return {name: part.decode(values[name]) for name, part in self.dimensions.items()}


def _parse_dimension(field: Field, values: Any) -> Range | Choice:
    if isinstance(values, Mapping):
        return _parse_range(field, values)
    if not isinstance(values, list | tuple) or not values:
        raise UserError(
            f"the search space of {field.name} has to be a list of choices, or a table with min"
            f" and max; received {values!r}"
        )
    # A float setting takes both 0 and 0.5; KerasTuner takes values of a single type only.
    if field.kind is float:
        values = [value if as_real(value) is None else as_real(value) for value in values]
    if any(values.count(value) > 1 for value in values):
        raise UserError(f"the search space of {field.name} has a repeated choice: {list(values)}")
    return Choice(tuple(values))


def _parse_range(field: Field, bounds: Mapping[str, Any]) -> Range:
    def check(is_valid: bool, expected: str) -> None:
        if not is_valid:
            raise UserError(f"the range of {field.name} needs {expected}; received {dict(bounds)}")

    if field.kind not in (int, float):
        raise UserError(
            f"{field.name} takes choices, not a range: pass a list; received {dict(bounds)}"
        )
    has_known_keys = {"min", "max"} <= bounds.keys() <= {"min", "max", "step", "sampling"}
    check(has_known_keys, "min and max, and may have step and sampling")
    is_integer = field.kind is int
    read = as_integer if is_integer else as_real
    numbers: dict[str, Any] = {key: read(bounds[key]) for key in bounds if key != "sampling"}
    are_numbers = all(n is not None and math.isfinite(n) for n in numbers.values())
    check(are_numbers, "integers" if is_integer else "finite numbers")
    least, most, step = numbers["min"], numbers["max"], numbers.get("step")
    sampling = bounds.get("sampling", "linear")
    check(sampling in _SAMPLINGS, f"a sampling of {', '.join(_SAMPLINGS)}")
    check(least < most, "a min below its max")
    is_linear = sampling == "linear"
    check(is_linear or least > 0, f"a min above 0 with sampling={sampling}")
    step_text = (
        "a step above 0" if is_linear else f"a step, a factor above 1, with sampling={sampling}"
    )
    check(step is None or step > (0 if is_linear else 1), step_text)
    return Range(least=least, most=most, step=step, sampling=sampling, is_integer=is_integer)
