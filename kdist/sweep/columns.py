"""The columns of a sweep's rows, each with a check of its values."""

from collections.abc import Callable, Mapping
from typing import Any

from ..analysis.groups import Row
from ..runs.run_record import finite

Columns = Mapping[str, Callable[[Any], bool]]
"""Names of columns, each with the check that a value has to pass where there is one."""


def is_text(value: Any) -> bool:
    """Whether the value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether the value is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether the value is a finite number."""
    return finite(value) is not None


def is_positive(value: Any) -> bool:
    """Whether the value is a finite number above 0."""
    return (finite(value) or 0.0) > 0


POINT: Columns = {
    "name": is_text,
    "kind": is_text,
    "status": is_text,
    "error": is_text,
    "batch_size": is_positive,
    "replicas": is_positive,
    "workers": is_positive,
    "global_batch": is_positive,
}
"""What every point has: its name, how it ended and what it ran on."""

RUN: Columns = {
    "learning_rate": is_number,
    "images_per_step": is_positive,
    "images_per_sec": is_positive,
    "images_per_sec_low": is_positive,
    "images_per_sec_high": is_positive,
    "seconds": is_positive,
    "epochs": is_number,
    "diverged": is_flag,
    "reached_target": is_flag,
    "seconds_to_target": is_positive,
    "epochs_to_target": is_positive,
    "val_accuracy": is_number,
    "best_val_accuracy": is_number,
    "noise_scale": is_number,
    "run_dir": is_text,
}
"""What is read from the folder of a run."""


def invalid_value(row: Row, columns: Columns) -> str:
    """The first value that does not pass its column's check, as "name value"; empty if all do."""
    for name, passes in columns.items():
        value = row.get(name)
        if value is not None and not passes(value):
            return f"{name} {value!r}"
    return ""
