"""Lists on the command line, such as `8,16,32`."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..errors import UserError

# Of batch sizes by replicas by rules as many runs are made, each of seconds at least.
_MOST_VALUES = 100


def parse_whole_numbers(option: str, text: str) -> list[int]:
    """The numbers of a list such as `8,16,32`, each once, in order of size.

    Raises:
        UserError: A part is no integer of at least 1, or comes twice; or there are too many.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_VALUES:
        raise UserError(
            f"{option} takes at most {_MOST_VALUES} numbers, received {len(parts)}: pass fewer, as"
            " each is a run or several"
        )
    wrong = [part for part in parts if not re.fullmatch("0*[1-9][0-9]{0,8}", part)]
    if wrong:
        raise UserError(
            f"{option} takes integers of at least 1, received {text!r}: separate them by commas,"
            " such as 1,2,4"
        )
    return sorted(_once(option, [int(part) for part in parts]))


def parse_names(option: str, text: str, known: Sequence[str]) -> list[str]:
    """The names of a list such as `linear,sqrt`.

    Raises:
        UserError: A name is not among those known, or comes twice.
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if part not in known]
    if wrong:
        raise UserError(f"{option} takes {', '.join(known)}, received {wrong[0]!r}")
    return _once(option, parts)


def _once(option: str, values: list[Any]) -> list[Any]:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise UserError(f"{option} received {twice[0]} twice: pass every value once")
    return values
