"""The names by which Keras describes the classes and functions of a model."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import keras

LAMBDA = "<lambda>"
# What `compile` and layers take by name; an optimizer's is in lower case, as no class's is.
_NAMED = (
    keras.activations,
    keras.constraints,
    keras.initializers,
    keras.losses,
    keras.metrics,
    keras.regularizers,
)


@dataclasses.dataclass(frozen=True)
class PartNames:
    """The names of a model's parts in its description.

    Attributes:
        custom_objects: The part of each name, for Keras to find it.
        shared: The parts that have another name there than their own, as others have theirs.
    """

    custom_objects: dict[str, Any]
    shared: dict[str, Any]

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Have Keras describe the parts by these names, and afterwards by their own."""
        own = {name: part.__name__ for name, part in self.shared.items()}
        try:
            for name, part in self.shared.items():
                part.__name__ = name
            yield
        finally:
            for name, part in self.shared.items():
                part.__name__ = own[name]

    def explanation(self, error: str) -> str | None:
        """Say which parts share the name that an error is about, if it is one of these."""
        for name, part in self.shared.items():
            if name in error:
                own = part.__name__
                same = [one for one in self.shared.values() if one.__name__ == own]
                others = [_place(one) for one in same if one is not part]
                other = (others or [f"Keras's {own}"])[0]
                return f"{_place(part)} and {other} have one name: give each its own"
        return None


def part_names(parts: list[Any]) -> PartNames:
    """Name each part by its own name, unless another part or one of Keras's has it, too.

    Args:
        parts: The classes and functions.
    """
    named = list({id(part): part for part in parts if part.__name__ != LAMBDA}.values())
    counts = Counter(part.__name__ for part in named)
    shared = [one for one in named if counts[one.__name__] > 1 or _is_known(one.__name__)]
    # A blank is in no name of Python's, so that these names are no other part's.
    new = {f"{part.__name__} {place}": part for place, part in enumerate(shared, 1)}
    own = {part.__name__: part for part in named if part not in shared}
    return PartNames(custom_objects=own | new, shared=new)


def replaced_part(parts: list[Any]) -> str | None:
    """Name a part whose registered name is another's by now, so that Keras would take that."""
    for part in parts:
        name = keras.saving.get_registered_name(part)
        if name != part.__name__ and keras.saving.get_registered_object(name) is not part:
            return f"{_place(part)} is registered as {name}, and so is another: register each once"
    return None


def _is_known(name: str) -> bool:
    """Whether Keras takes this name for one of its own."""
    if name in ("accuracy", "acc", "crossentropy", "ce"):
        return True
    for kinds in _NAMED:
        with contextlib.suppress(Exception):  # a ValueError, or a class that needs arguments
            if kinds.get(name) is not None:
                return True
    return False


def _place(part: Any) -> str:
    code = getattr(part, "__code__", None)
    line = f" (line {code.co_firstlineno})" if code else ""
    return f"{part.__module__}.{part.__qualname__}{line}"
