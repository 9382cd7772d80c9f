"""Words for counts and remaining time, and replacement of text that UTF-8 cannot encode."""

from collections.abc import Mapping
from typing import Any


def count(number: float, noun: str) -> str:
    """Return a number, rounded, with its noun.

    Example:
        >>> count(1200, "run"), count(1.2, "image")
        ('1,200 runs', '1 image')
    """
    rounded = f"{number:,.0f}"
    return f"{rounded} {noun}{'' if rounded == '1' else 's'}"


def time_left(seconds: float) -> str:
    """Describe how long work still takes.

    Example:
        >>> time_left(42.4), time_left(90), time_left(9000)
        ('about 42 seconds left', 'about 1.5 minutes left', 'about 2.5 hours left')
    """
    if seconds < 60:
        return f"about {seconds:.0f} seconds left"
    if seconds < 7200:
        return f"about {seconds / 60:,.1f} minutes left"
    return f"about {seconds / 3600:,.1f} hours left"


def sanitize_text(value: Any) -> Any:
    r"""Replace characters that UTF-8 cannot encode, as in folder names of another encoding.

    Example:
        >>> sanitize_text(["run-\udcff"])
        ['run-?']
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {sanitize_text(name): sanitize_text(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize_text(one) for one in value]
    return value
