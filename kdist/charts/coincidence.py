"""Curves that lie on each other, and dashes and rings that show each of them."""

from collections.abc import Mapping, Sequence

Curve = Mapping[float, float]
"""Heights by place, such as accuracies by epoch."""

# Closer than this fraction of the range of all curves, two lines of a chart look like one.
_CLOSE = 0.004
# Pixels of one curve before the next one's turn.
_DASH = 9.0


def coinciding(curves: Mapping[str, Curve]) -> list[list[str]]:
    """Group the curves that lie on each other wherever both have a value.

    Args:
        curves: The curves by name.

    Returns:
        The names of each group of two or more.

    Example:
        >>> coinciding({"a": {1: 0.5, 2: 0.9}, "b": {1: 0.5}, "c": {1: 0.1, 2: 0.2}})
        [['a', 'b']]
    """
    heights = [height for curve in curves.values() for height in curve.values()]
    close = _CLOSE * (max(heights) - min(heights)) if heights else 0.0
    groups: list[list[str]] = []
    for name, curve in curves.items():
        same = (group for group in groups if _agree(curve, curves[group[0]], close))
        group = next(same, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [group for group in groups if len(group) > 1]


def _agree(one: Curve, other: Curve, close: float) -> bool:
    common = one.keys() & other.keys()
    return bool(common) and all(abs(one[place] - other[place]) <= close for place in common)


def alternating_dashes(groups: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Dashes with which the curves of a group take turns along their common line.

    Example:
        >>> alternating_dashes([["a", "b"]])
        {'a': [0, 0.0, 9.0, 9.0], 'b': [0, 9.0, 9.0, 0.0]}
    """
    return {
        name: [0, turn * _DASH, _DASH, (len(group) - 1 - turn) * _DASH]
        for group in groups
        for turn, name in enumerate(group)
    }


def nested_sizes(groups: Sequence[Sequence[str]], *, size: float) -> dict[str, float]:
    """Sizes of the points of a group, the later the smaller, so that each is seen as a ring.

    Args:
        groups: The names of each group, in the order in which they are drawn.
        size: Square pixels of a point that lies alone, and of the last of a group.
    """
    found = {}
    for group in groups:
        ring = min(2.2, 9 / len(group))
        for turn, name in enumerate(group):
            found[name] = (size**0.5 + 2 * ring * (len(group) - 1 - turn)) ** 2
    return found
