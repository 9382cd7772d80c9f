"""`ReplicaCount`: the value of `num_replicas_in_sync` outside of steps, recognized in a step.

A step sees the global batch, and there `num_replicas_in_sync` is 1. Code written for
`tf.distribute` reads the number before the step: `loss / n`, or `batch_size // n` rows of noise, in
the step make a different model. So quotients, remainders, sums and differences of a `ReplicaCount`
are recognized, too. A product is a plain number: `64 * n` is a global batch size and `0.1 * n` a
learning rate, and both are right for the global batch.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from ..errors import cut_line, format_code_line, is_of_user

# Files of library functions that a line of the step calls with the number. Other library code uses
# numbers that an object was made with, outside of the step, such as a schedule's rate.
_FUNCTIONS = re.compile(
    r"/tensorflow/|/keras/src/(backend|ops|random|utils)/|/_upstream/|/spmd/functions\.py"
)
_OPTIMIZERS = "/keras/src/optimizers/"


def _recognize_result(operate: Callable[[Any, Any], Any]) -> Any:
    """Return an operator whose result is a `ReplicaNumber`, too."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        result = operate(self.real, other.real)
        return _SAME_KIND.get(type(result), type(result))(result)

    return method


def _reflect(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: operate(other, self)


def _multiply_share(self: Any, other: Any) -> Any:
    """Multiply a share; a share times the number of replicas is the whole, a plain number."""
    if isinstance(other, ReplicaCount):
        return self.real * other.real
    return _recognize_result(operator.mul)(self, other)


class ReplicaNumber:
    """A number that follows from a `ReplicaCount`; its copies and pickles are plain numbers."""

    real: Any
    __add__ = __radd__ = _recognize_result(operator.add)
    __sub__ = _recognize_result(operator.sub)
    __rsub__ = _recognize_result(_reflect(operator.sub))
    __truediv__ = _recognize_result(operator.truediv)
    __rtruediv__ = _recognize_result(_reflect(operator.truediv))
    __floordiv__ = _recognize_result(operator.floordiv)
    __rfloordiv__ = _recognize_result(_reflect(operator.floordiv))
    __mod__ = _recognize_result(operator.mod)
    __rmod__ = _recognize_result(_reflect(operator.mod))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (value.real if isinstance(value, ReplicaNumber) else value for value in inputs)
        # NumPy's rules for Python numbers apply.
        return getattr(ufunc, method)(*plain, **options)

    def __reduce__(self) -> Any:
        return type(self.real), (self.real,)


class ReplicaCount(ReplicaNumber, int):
    """The number of replicas."""

    __module__ = "builtins"  # W&B writes numbers of all other modules as texts.
    dtype: Final = int  # Keras promotes dtypes as with a plain `int`.


class _IntShare(ReplicaNumber, int):
    __module__ = "builtins"
    dtype: Final = int
    __mul__ = __rmul__ = _multiply_share


class _FloatShare(ReplicaNumber, float):
    __module__ = "builtins"
    dtype: Final = float
    __mul__ = __rmul__ = _multiply_share


_SAME_KIND: dict[type, type] = {int: _IntShare, float: _FloatShare}


def is_recognized(value: Any) -> bool:
    """Whether a value is a `ReplicaNumber`, or a list with a `ReplicaNumber`, such as a shape."""
    if isinstance(value, list | tuple):
        return any(map(is_recognized, value))
    return isinstance(value, ReplicaNumber)


def warning_in_step(places: Iterable[tuple[str, int]]) -> str | None:
    """Return the warning about a `ReplicaNumber` in a step.

    `places` are the files and line numbers of the traceback that made a tensor of the number, the
    outermost first. `None` means that no line of the user's uses the number itself: an object that
    was made with the number uses it, such as a layer or an optimizer.
    """
    paths = [*places]
    own = [number for number, (path, _) in enumerate(paths) if is_of_user(path)]
    if not own or any(_OPTIMIZERS in path for path, _ in paths):
        return None
    if not all(_FUNCTIONS.search(path) for path, _ in paths[own[-1] + 1 :]):
        return None
    return (
        "kdist: a line of the step uses a number that was computed, outside the step, from"
        " strategy.num_replicas_in_sync. A step sees the global batch, where num_replicas_in_sync"
        " is 1: read it inside the step, or leave it out (to keep the number, convert it by int()"
        " or float()):"
        f" {cut_line(format_code_line(*paths[own[-1]]))}"
    )
