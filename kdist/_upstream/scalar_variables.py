"""Python numbers from scalar variables with a copy on every replica."""

from collections.abc import Callable
from typing import Any

from keras.src.backend.common.variables import Variable

from .hooks import hooks_of_copies
from .patching import replaces


def _read_first_copy(original: Callable[..., Any], variable: Any) -> Any:
    """Read the first replica's copy, as all copies are equal."""
    if variable.ndim == 0 and hooks_of_copies(variable) is not None:
        return variable.value.numpy().item()
    return original(variable)


@replaces(
    Variable,
    "__float__",
    why="Raises a TypeError for a variable with a copy on every replica, for example in"
    " `float(optimizer.learning_rate)`.",
    test="test_a_scalar_variable_is_no_number",
)
def _to_float(original: Callable[..., Any], variable: Any) -> float:
    return float(_read_first_copy(original, variable))


@replaces(
    Variable,
    "__int__",
    why="Raises a TypeError for a variable with a copy on every replica, for example in"
    " `int(optimizer.iterations)`.",
    test="test_a_scalar_variable_is_no_number",
)
def _to_int(original: Callable[..., Any], variable: Any) -> int:
    return int(_read_first_copy(original, variable))


PATCHES = (_to_float, _to_int)
