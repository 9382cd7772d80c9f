"""`SearchSpace`: the settings to tune, as plain data."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import as_real
from ..errors import UserError
from ..fields import field_names, fields_of
from ..training.config import TrainConfig
from ..training.settings import Data, Execution, Model, Optimization

TUNABLE = (field_names(Data, Model, Optimization, Execution) | {"batch_size", "epochs"}) - {
    *("dataset", "data_dir", "subset"),  # all trials use the same data
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


class SearchSpace:
    """The settings of `TrainConfig` that a search varies, each with its choices or range.

    Args:
        ranges: For each setting a list of choices, or a mapping with `min` and `max` and optionally
            `step` and `sampling` (`"linear"`, `"log"`, `"reverse_log"`; with `"log"` a step is a
            factor), as `tomllib` and `json` read them.
        base: The settings that are not tuned.

    Raises:
        UserError: A setting cannot be tuned, or a value is invalid for a run.

    Examples:
        >>> space = SearchSpace({"batch_size": [32, 64]}, base=TrainConfig())
        >>> space.ranges["batch_size"]
        [32, 64]
    """

    def __init__(self, ranges: Mapping[str, Any], *, base: TrainConfig) -> None:
        kinds = {field.name: field.kind for field in fields_of(TrainConfig)}
        wrong = sorted(set(ranges) - TUNABLE)
        if wrong or not ranges:
            problem = f"has {', '.join(wrong)}, which cannot be tuned" if wrong else "is empty"
            available = ", ".join(name for name in kinds if name in TUNABLE)
            raise UserError(f"the search space {problem}: available are {available}")
        for name, values in ranges.items():
            _check_form(name, values)
        self.ranges = dict(ranges)
        self._integers = {name for name in ranges if kinds[name] is int}
        first = {name: self.values_to_check(name)[0] for name in ranges}
        for name in ranges:
            for value in self.values_to_check(name):
                try:
                    TrainConfig.from_dict({**base.to_dict(), **first, name: value})
                except UserError as error:
                    raise UserError(
                        f"the search space contains an invalid setting, {name} {value}: {error}"
                    ) from error

    def values_to_check(self, name: str) -> Sequence[Any]:
        """Return all choices of a setting; of a range both ends, and an integer's first step."""
        values = self.ranges[name]
        if not isinstance(values, Mapping):
            return list(values)
        ends = [values["min"], values["max"]]
        is_linear = values.get("sampling", "linear") == "linear"
        if name in self._integers and is_linear:
            ends.append(min(values["min"] + values.get("step", 1), values["max"]))
        return ends

    def declare(self, hp: Any) -> None:
        """Declare the space to KerasTuner's `HyperParameters`.

        Raises:
            UserError: KerasTuner rejects a range, such as a range from 0 with `sampling="log"`.
        """
        for name, values in self.ranges.items():
            if not isinstance(values, Mapping):
                is_encoded = _are_encoded(values)
                hp.Choice(name, [json.dumps(value) if is_encoded else value for value in values])
                continue
            kind = hp.Int if name in self._integers else hp.Float
            options = {key: values[key] for key in ("step", "sampling") if key in values}
            try:
                kind(name, values["min"], values["max"], **options)
            except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
                raise UserError(f"the range of {name} is invalid: {error}") from error

    def decode(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert KerasTuner's values of a trial into settings; fractions have six digits."""
        settings = {}
        for name, choices in self.ranges.items():
            value = values[name]
            if isinstance(choices, Mapping):
                settings[name] = value if name in self._integers else float(f"{value:.6g}")
            else:
                settings[name] = json.loads(value) if _are_encoded(choices) else value
        return settings


def _check_form(name: str, values: Any) -> None:
    if isinstance(values, Mapping):
        numbers: dict[str, Any] = {
            key: as_real(value) for key, value in values.items() if key != "sampling"
        }
        has_known_keys = {"min", "max"} <= values.keys() <= {"min", "max", "step", "sampling"}
        if (
            not has_known_keys
            or None in numbers.values()
            or not numbers["min"] < numbers["max"]
            or not numbers.get("step", 1) > 0
        ):
            raise UserError(
                f"the range of {name} needs numbers: a min below its max, and optionally a step"
                f" above 0; sampling is also optional; received {dict(values)}"
            )
    elif not isinstance(values, list | tuple) or not values or _has_repeated(values):
        raise UserError(
            f"the search space of {name} has to be a list of different choices, or a table with min"
            f" and max; received {values!r}"
        )


def _has_repeated(choices: Sequence[Any]) -> bool:
    return any(choice in choices[:place] for place, choice in enumerate(choices))


def _are_encoded(choices: Sequence[Any]) -> bool:
    """Whether KerasTuner gets choices as JSON: it takes numbers or texts of a single type only."""
    return {type(choice) for choice in choices} not in ({int}, {float}, {str})
