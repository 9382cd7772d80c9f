"""`Patch`: replace a function of Keras or TensorFlow."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import UserError

KERAS = "Keras 3.15.1"
TENSORFLOW = "TensorFlow 2.21.0"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A function of Keras or TensorFlow that kdist replaces, and why.

    Args:
        owner: The class or module that contains the function.
        name: The name of the function.
        replacement: Called instead, with the original function before the arguments.
        why: What stock Keras or TensorFlow does that is wrong or missing.
        canary: The test in `tests/upstream/` that fails when upstream no longer does this.
        seen_in: The latest version in which it was seen.
        issue: The upstream issue, such as `"keras#20582"`; empty if there is none.
        imported_as: The name under which `owner` imports the module with the function. It is then
            replaced only for `owner`. `None` if `owner` itself contains the function.
        classes: Returns, for a model that is about to be trained, the classes in which to replace
            the function if they define it. `None` replaces it in `owner` when the first strategy is
            made.
    """

    owner: Any
    name: str
    replacement: Callable[..., Any]
    why: str
    canary: str
    seen_in: str = KERAS
    issue: str = ""
    imported_as: str | None = None
    classes: Callable[[Any], Iterable[type]] | None = None

    @property
    def path(self) -> str:
        """The full name of the function, such as `keras.src.layers.rnn.rnn.RNN.call`."""
        owner = self.owner
        is_class = isinstance(owner, type)
        full = f"{owner.__module__}.{owner.__qualname__}" if is_class else owner.__name__
        return ".".join(part for part in (full, self.imported_as, self.name) if part)

    def install(self) -> None:
        """Replace the function, unless it is already replaced.

        Raises:
            UserError: The installed version has no such function.
        """
        try:
            if self.imported_as is not None:
                replace_in_module(self.owner, self.imported_as, self.name, self.replacement)
            elif self.classes is None:
                replace(self.owner, self.name, self.replacement)
        except AttributeError as error:
            raise UserError(
                f"kdist replaces {self.path}, which the installed version does not have ({error}):"
                f" install {self.seen_in}, or a newer kdist"
            ) from error

    def install_for(self, model: Any) -> None:
        """Replace the function in the classes that a model may use."""
        for kind in self.classes(model) if self.classes else ():
            if self.name in vars(kind):
                replace(kind, self.name, self.replacement)


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


def subclasses(kind: type) -> list[type]:
    """Return all direct and indirect subclasses of a class, including the user's."""
    direct: list[type] = kind.__subclasses__()
    return [*direct, *(one for subclass in direct for one in subclasses(subclass))]


class _Overlay:
    """A module with some functions replaced, for one of the modules that import it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def replace_in_module(
    user: Any, imported_as: str, name: str, replacement: Callable[..., Any]
) -> None:
    """Replace a function of the module that `user` imports as `imported_as`, only for `user`."""
    module = getattr(user, imported_as)
    if not isinstance(module, _Overlay):
        module = _Overlay(module)
        setattr(user, imported_as, module)
    if name not in vars(module):
        setattr(module, name, functools.partial(replacement, getattr(module, name)))
