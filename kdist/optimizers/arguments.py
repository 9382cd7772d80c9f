"""Check arguments of optimizers."""

import math
from collections.abc import Sequence
from typing import Any

from ..arguments import as_real
from ..errors import UserError


def checked_number(
    name: str, value: Any, *, above: float | None = None, below: float = math.inf
) -> float:
    """Check a number: at least 0 (or above `above`), and below `below`."""
    number = as_real(value)
    low = number is not None and (number >= 0 if above is None else number > above)
    if number is None or not (low and number < below):
        least = "at least 0" if above is None else f"above {above:g}"
        bound = "finite" if below == math.inf else f"below {below:g}"
        raise UserError(f"{name} has to be a number {least} and {bound}; received {value!r}")
    return number


def checked_names(name: str, value: Any) -> tuple[str, ...]:
    """Check a list of names of variables, and return it as a tuple."""
    names = isinstance(value, Sequence) and not isinstance(value, str)
    if not names or not all(isinstance(one, str) for one in value):
        raise UserError(
            f'{name} has to be a list of names such as ["bias", "gamma"]; received {value!r}'
        )
    return tuple(value)
