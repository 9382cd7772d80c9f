"""How a function of Keras or TensorFlow is replaced: once, for good, the original at hand."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

KERAS = "Keras 3.15.1"
TENSORFLOW = "TensorFlow 2.21.0"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A function of Keras or TensorFlow that is replaced, and why.

    Args:
        owner: The class or module that has the function.
        name: The function's name there.
        replacement: Called in its place, with the original function before the arguments.
        why: What stock Keras or TensorFlow does that is wrong or missing.
        canary: The test in `tests/upstream/` that fails once upstream no longer does that.
        seen_in: The version that it was last seen in.
        issue: The upstream issue, such as `"keras#20582"`; empty where there is none.
        imported_as: The name by which `owner` has imported the module with the function, which is
            then replaced for `owner` alone. `None` where the function is the owner's.
        classes: From a model that is about to be trained, the classes that get the replacement
            where they define the function. `None`: the owner gets it, as the first strategy is
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
        """Where the function is, such as `keras.src.layers.rnn.rnn.RNN.call`."""
        owner = self.owner
        place = (
            f"{owner.__module__}.{owner.__qualname__}"
            if isinstance(owner, type)
            else (owner.__name__)
        )
        return ".".join(part for part in (place, self.imported_as, self.name) if part)

    def install(self) -> None:
        """Put the replacement in its place, unless it is there."""
        if self.imported_as is not None:
            replace_in_module(self.owner, self.imported_as, self.name, self.replacement)
        elif self.classes is None:
            replace(self.owner, self.name, self.replacement)

    def install_for(self, model: Any) -> None:
        """Put the replacement into the classes that a model may use."""
        for kind in self.classes(model) if self.classes else ():
            if self.name in vars(kind):
                replace(kind, self.name, self.replacement)


def replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put `replacement(original, *args)` in the place of `owner.name`, once."""
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
    """Every class that is made from `kind`, those of the user's program too."""
    direct: list[type] = kind.__subclasses__()
    return [*direct, *(one for subclass in direct for one in subclasses(subclass))]


class _Overlay:
    """A module, some of its functions replaced for one of the modules that use it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def replace_in_module(
    user: Any, imported_as: str, name: str, replacement: Callable[..., Any]
) -> None:
    """Replace a function of the module that `user` has imported as `imported_as`, for it alone."""
    module = getattr(user, imported_as)
    if not isinstance(module, _Overlay):
        module = _Overlay(module)
        setattr(user, imported_as, module)
    if name not in vars(module):
        setattr(module, name, functools.partial(replacement, getattr(module, name)))
