"""`SearchSpace`: the settings to tune, as plain data."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import as_integer, as_real
from ..errors import UserError
from ..fields import NotTuned, field_names, marked
from ..training.config import TrainConfig
from ..training.settings import FOLDERS, Checkpoints, Output, OwnModel, Stopping

NOT_TUNED = {
    **{name: mark.why for name, mark in marked(TrainConfig, NotTuned).items()},
    **dict.fromkeys(field_names(OwnModel), "a search is of one model"),
    **dict.fromkeys(field_names(Checkpoints), "a search saves the models itself"),
    **dict.fromkeys(field_names(Stopping) - {"epochs"}, "it defines the target of the search"),
    **dict.fromkeys(field_names(Output) - FOLDERS, "it only tracks and does not change training"),
    **dict.fromkeys(field_names(Output) & FOLDERS, "the search has a folder of its own"),
}
"""Settings that cannot be tuned, and why."""

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

_RANGE_KEYS = ("min", "max", "step", "sampling")
_SAMPLINGS = ("linear", "log", "reverse_log")
_MOST_CHECKED = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `least` to `most`, both included; integers if `whole`."""

    least: float
    most: float
    step: float | None
    sampling: str
    whole: bool

    def samples(self) -> Iterator[float]:
        """Yield the ends; of integers also the values between, up to a thousand."""
        value = self.least
        for _ in range(_MOST_CHECKED if self.whole else 1):
            if value > self.most:
                break
            yield value
            if self.sampling == "linear":
                value += self.step or 1
            else:
                value = value * self.step if self.step else value + 1
        if not self.whole:
            yield self.most

    def decode(self, value: float) -> float:
        """Convert KerasTuner's value into the setting's, which a table shows as it is."""
        return value if self.whole else float(f"{value:.6g}")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A list of values."""

    values: tuple[Any, ...]

    def samples(self) -> Iterator[Any]:
        """Iterate over all values."""
        return iter(self.values)

    @property
    def as_text(self) -> bool:
        """Whether values are passed to KerasTuner as JSON, as it takes values of one type only."""
        kinds = {type(value) for value in self.values}
        return len(kinds) > 1 or bool in kinds or None in self.values

    def decode(self, value: Any) -> Any:
        """Convert KerasTuner's value into the choice."""
        return json.loads(value) if isinstance(value, str) and value not in self.values else value


class SearchSpace:
    """The settings of `TrainConfig` that a search varies, each with its choices or range.

    Args:
        ranges: For each setting a list of choices, or a mapping with `min` and `max` and optionally
            `step` and `sampling` (`"linear"`, `"log"`, `"reverse_log"`; with `"log"` a step is a
            factor), as `tomllib` and `json` read them.
        base: The other settings.

    Raises:
        UserError: A setting is unknown or cannot be tuned, or a value is invalid for a run.

    Example:
        >>> space = SearchSpace({"batch_size": [32, 64]}, base=TrainConfig())
        >>> space.dimensions["batch_size"]
        Choice(values=(32, 64))
    """

    def __init__(self, ranges: Mapping[str, Any], *, base: TrainConfig) -> None:
        known = typing.get_type_hints(TrainConfig)
        tunable = [name for name in known if name not in NOT_TUNED]
        unknown = sorted(set(ranges) - set(known))
        if unknown:
            raise UserError(
                f"unknown hyperparameter {', '.join(unknown)} in the search space: available are"
                f" {', '.join(tunable)}"
            )
        for name in ranges:
            if name in NOT_TUNED:
                raise UserError(f"{name} cannot be tuned: {NOT_TUNED[name]}")
        if not ranges:
            raise UserError("the search space is empty: name at least one of " + ", ".join(tunable))
        self.dimensions = {name: _read(name, ranges[name], known[name]) for name in ranges}
        self._check(base)

    def _check(self, base: TrainConfig) -> None:
        first = {name: next(iter(part.samples())) for name, part in self.dimensions.items()}
        for name, part in self.dimensions.items():
            for value in part.samples():
                values = {**first, name: value}
                problem = _problem(base, values)
                if problem is None:
                    continue
                # Perhaps the first value of another setting does not suit the base.
                alone = {key: str(_problem(base, {key: values[key]})) for key in values}
                wrong = next((key for key in alone if alone[key] == str(problem)), name)
                raise UserError(
                    f"the search space of {wrong} contains {values[wrong]}: {problem}"
                ) from problem

    def declare(self, hp: Any) -> None:
        """Declare the space to KerasTuner's `HyperParameters`."""
        for name, part in self.dimensions.items():
            if isinstance(part, Range):
                kind = hp.Int if part.whole else hp.Float
                kind(name, part.least, part.most, step=part.step, sampling=part.sampling)
            elif set(part.values) == {True, False} and isinstance(part.values[0], bool):
                hp.Boolean(name)
            elif part.as_text:
                hp.Choice(name, [json.dumps(value) for value in part.values])
            else:
                hp.Choice(name, list(part.values))

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert KerasTuner's values of a trial into settings."""
        return {name: part.decode(values[name]) for name, part in self.dimensions.items()}


def _problem(base: TrainConfig, values: Mapping[str, Any]) -> UserError | None:
    try:
        TrainConfig.from_dict({**base.to_dict(), **values})
    except UserError as error:
        return error
    return None


def _read(name: str, given: Any, hint: Any) -> Range | Choice:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(given, Mapping):
        return _read_range(name, given, kinds)
    if not isinstance(given, list | tuple) or not given:
        raise UserError(
            f"the search space of {name} has to be a list of choices, or a table with min and max;"
            f" received {given!r}"
        )
    nested = [value for value in given if isinstance(value, list | tuple | Mapping)]
    if nested:
        raise UserError(f"the search space of {name} contains {nested[0]!r}: pass single values")
    # A float setting takes both 0 and 0.5; KerasTuner takes one type only.
    if float in kinds:
        given = [as_real(value) if as_real(value) is not None else value for value in given]
    if len({(type(value), value) for value in given}) < len(given):
        raise UserError(f"the search space of {name} has a repeated choice: {list(given)}")
    return Choice(tuple(given))


def _read_range(name: str, given: Mapping[str, Any], kinds: tuple[Any, ...]) -> Range:
    whole = int in kinds
    if not whole and float not in kinds:
        raise UserError(f"{name} has no range: list its choices instead, received {dict(given)}")
    unknown = sorted(set(given) - set(_RANGE_KEYS))
    if unknown or not {"min", "max"} <= set(given):
        raise UserError(
            f"the range of {name} needs min and max, and may have step and sampling; received"
            f" {', '.join(map(str, given))}"
        )
    read = as_integer if whole else as_real
    numbers = {key: read(given[key]) for key in ("min", "max", "step") if key in given}
    for key, number in numbers.items():
        if number is None or not math.isfinite(number):
            kind = "an integer" if whole else "a finite number"
            raise UserError(f"{key} of {name}'s range has to be {kind}, received {given[key]!r}")
    least, most, step = (typing.cast(Any, numbers.get(key)) for key in ("min", "max", "step"))
    sampling = given.get("sampling", "linear")
    if sampling not in _SAMPLINGS:
        raise UserError(
            f"sampling of {name}'s range has to be one of {', '.join(_SAMPLINGS)}; received"
            f" {sampling}"
        )
    if not least < most:
        raise UserError(
            f"min of {name}'s range has to be below its max, received {least} and {most}"
        )
    if sampling != "linear" and not least > 0:
        raise UserError(
            f"min of {name}'s range with sampling={sampling} has to be above 0, received {least}"
        )
    if step is not None and not step > (0 if sampling == "linear" else 1):
        bound = "above 0" if sampling == "linear" else f"a factor above 1 with sampling={sampling}"
        raise UserError(f"step of {name}'s range has to be {bound}, received {step}")
    return Range(least=least, most=most, step=step, sampling=sampling, whole=whole)
