"""Integers on the command line."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import Token

_MOST_CHARACTERS = 50


def parse_integer(_: Any, tokens: "Sequence[Token]") -> int:
    """Convert the value of an option; cyclopts' own conversion would round 1.5 to 2.

    Raises:
        ValueError: It is not an integer.
    """
    (token,) = tokens
    text = re.sub(r"\.0*$", "", token.value)  # of 30.0
    try:
        return int(text, 0 if re.match(r"[+-]?0[xob]", text, re.I) else 10)
    except ValueError:  # also of thousands of digits
        shown = repr(token.value) if len(token.value) < _MOST_CHARACTERS else "a long text"
        raise ValueError(f"expected an integer, received {shown}") from None
