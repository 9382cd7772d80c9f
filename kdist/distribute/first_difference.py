"""`first_difference`: where nested values of several workers first differ."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

MISSING = "missing"
_TOLERANCE = 1e-6  # machines round a computed number differently


def first_difference(path: str, each: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return the path of the first value that is not the same in all, and what each has there.

    Args:
        path: The name of the whole.
        each: Dictionaries, lists and plain values, nested in any way. Numbers that are equal to
            rounding are the same.

    Example:
        >>> first_difference("layers[3]", [{"units": 2}, {"units": 4}])
        ('layers[3].units', [2, 4])
    """
    if all(isinstance(one, Mapping) for one in each):
        parts = [(f".{name}", name) for name in dict.fromkeys(name for one in each for name in one)]
        return _first(
            path, [(end, [one.get(name, MISSING) for one in each]) for end, name in parts]
        )
    if all(isinstance(one, list | tuple) for one in each):
        lengths = [len(one) for one in each]
        if len({*lengths}) > 1:
            return f"the length of {path}", lengths
        places = enumerate(zip(*each, strict=True))
        return _first(path, [(f"[{at}]", list(ones)) for at, ones in places])
    return None if all(_is_same(each[0], one) for one in each[1:]) else (path, list(each))


def _first(path: str, parts: Sequence[tuple[str, list[Any]]]) -> tuple[str, list[Any]] | None:
    for end, each in parts:
        found = first_difference(f"{path}{end}", each)
        if found is not None:
            return found
    return None


def _is_same(one: Any, other: Any) -> bool:
    kinds = {type(one), type(other)}
    if kinds <= {int, float} and float in kinds:
        are_nan = math.isnan(one) and math.isnan(other)
        return are_nan or math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other)
