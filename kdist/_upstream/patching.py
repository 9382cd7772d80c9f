"""`Patch` and `replaces`: replace a function of Keras or TensorFlow."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UserError

KERAS = "Keras 3.15.1"
TENSORFLOW = "TensorFlow 2.21.0"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """The replacement of a function of Keras or TensorFlow, with the reason.

    Args:
        owner: The class or module that contains the function.
        name: The name of the function.
        replacement: Called instead, with the original function before the arguments.
        why: The wrong or missing behavior of stock Keras or TensorFlow.
        test: The test in `tests/upstream/` that fails once upstream behaves differently.
        seen_in: The latest version that is known to behave as in `why`.
    """

    owner: Any
    name: str
    replacement: Callable[..., Any]
    why: str
    test: str
    seen_in: str = KERAS

    @property
    def path(self) -> str:
        """The full name of the function, such as `keras.src.layers.rnn.rnn.RNN.call`."""
        owner = self.owner
        is_class = isinstance(owner, type)
        full = f"{owner.__module__}.{owner.__qualname__}" if is_class else owner.__name__
        return f"{full}.{self.name}"

    def install(self) -> None:
        """Replace the function, unless it is already replaced."""
        try:
            replace(self.owner, self.name, self.replacement)
        except AttributeError as error:
            raise UserError(
                f"kdist replaces {self.path}, which the installed"
                f" {self.seen_in.split()[0]} does not have ({error}): install {self.seen_in}, or a"
                " newer kdist"
            ) from error


def replaces(
    owner: Any, name: str, *, why: str, test: str, seen_in: str = KERAS
) -> Callable[[Callable[..., Any]], Patch]:
    """Return a decorator that makes a function the `Patch` of `owner.name`; see `Patch`."""

    def decorate(replacement: Callable[..., Any]) -> Patch:
        return Patch(
            owner=owner, name=name, replacement=replacement, why=why, test=test, seen_in=seen_in
        )

    return decorate


def replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replace `owner.name` by `replacement(original, *args)`, once."""
    original = getattr(owner, name)
    before = getattr(original, "_kdist_replacements", ())
    if replacement in before:
        return

    @functools.wraps(original)
    def method(*args: Any, **options: Any) -> Any:
        return replacement(original, *args, **options)

    method._kdist_replacements = (*before, replacement)  # type: ignore[attr-defined]
    setattr(owner, name, method)
