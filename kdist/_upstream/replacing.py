"""How a function of Keras is replaced: once, for good, and with the original at hand."""

import functools
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorator: puts `replacement(original, *args)` in the place of `owner.name`, once."""
    original = getattr(owner, name)
    before = getattr(original, "_kdist", ())

    def put(replacement: Callable[..., Any]) -> None:
        if replacement.__qualname__ not in before:
            wrapped = functools.wraps(original)(functools.partial(replacement, original))
            method = functools.wraps(original)(lambda *args, **kwargs: wrapped(*args, **kwargs))
            method._kdist = (*before, replacement.__qualname__)  # type: ignore[attr-defined]
            setattr(owner, name, method)

    return put


def subclasses(kind: type) -> list[type]:
    """Every class that is made from `kind`, those of the user's program too."""
    direct: list[type] = kind.__subclasses__()
    return [*direct, *(one for subclass in direct for one in subclasses(subclass))]


class _Overlay:
    """A module, some of its functions replaced for one of the modules that use it."""

    def __init__(self, module: Any, functions: dict[str, Callable[..., Any]]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def replace_in_module(user: Any, name: str, **replacements: Callable[..., Any]) -> None:
    """Replace functions of the module that `user` has imported as `name`, for `user` alone."""
    module = getattr(user, name)
    if not isinstance(module, _Overlay):
        functions: dict[str, Callable[..., Any]] = {
            function: functools.partial(replacement, getattr(module, function))
            for function, replacement in replacements.items()
        }
        setattr(user, name, _Overlay(module, functions))
