"""`search_largest`: the largest number with which something works, by doubling and halving."""

from collections.abc import Callable

# Between the largest that works and the smallest that does not: a twentieth.
_RESOLUTION = 1.05


def search_largest(works: Callable[[int], bool], *, start: int, most: int) -> int | None:
    """Return the largest number, to about 5 %, for which `works` is true; `None` if there is none.

    It doubles `start` until the number does not work, or halves it until it does, and then halves
    the interval between the two. What works with a number has to work with all smaller ones.

    Args:
        works: Tries a number; it is called once for each.
        start: The first number.
        most: The largest number that is tried.

    Example:
        >>> search_largest(lambda number: number <= 100, start=16, most=1000)
        100
    """
    good, bad = 0, most + 1
    number = min(start, most)
    while good < number < bad:
        if works(number):
            good = number
            number = min(2 * number, most)
        else:
            bad = number
            number //= 2
        if good and bad <= most:
            break
    while good and bad <= most and bad - good > 1 and bad / good > _RESOLUTION:
        middle = (good + bad) // 2
        if works(middle):
            good = middle
        else:
            bad = middle
    return good or None
