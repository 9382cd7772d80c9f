"""Options of the command line, made of the types of settings; integers and lists."""

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from ..errors import UserError
from ..training.config import refuse_with_own_model
from ..training.fields import Field, Repeatable, fields_of
from ..training.recipes import read_recipe, read_settings, recipe_names

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


ConfigFile = Annotated[
    str | None,
    Parameter(help="Settings file, TOML or JSON. Options on the command line override it."),
]
Recipe = Annotated[
    str | None,
    Parameter(help=f"Settings that come with kdist: {', '.join(recipe_names())}."),
]

OwnModelName = Annotated[
    str | None,
    Parameter(
        help="FILE.py:FUNCTION, your own build() that returns a compiled model; by default the"
        " one of --network."
    ),
]


def options_of(settings: type, *, without: Collection[str] = ()) -> Any:
    """Make a class of command-line options from a class of settings: one for each.

    Args:
        settings: A dataclass, such as `TrainConfig`.
        without: Settings that get no option.

    Returns:
        A dataclass for `Annotated[..., Parameter(name="*")]`; `given` reads an object of it.
    """
    fields = [field for field in fields_of(settings) if field.name not in without]
    places = {field.group: place for place, field in reversed(list(enumerate(fields)))}
    made = dataclasses.make_dataclass(
        f"{settings.__name__}Options",
        [
            (field.name, _option(field, places[field.group]), dataclasses.field(default=None))
            for field in fields
        ],
        kw_only=True,
        frozen=True,
    )
    made.__module__ = __name__  # cyclopts takes a class of the module `types` for no class
    return made


def _option(field: Field, place: int) -> Any:
    kind = list[str] if field.has(Repeatable) else field.kind
    shown = str(field.default)
    parameter = Parameter(
        help=field.help,
        group=Group(field.group, sort_key=place),
        converter=parse_integer if field.kind is int else None,
        negative=None if field.kind is bool else (),
        show_default=False if field.default is None else lambda _: shown,
    )
    return Annotated[kind | None, parameter]  # `None` is what is not given


def given(options: Any) -> dict[str, Any]:
    """The options that are on the command line, even with their defaults."""
    return {name: value for name, value in vars(options).items() if value is not None}


def read_files(recipe: str | None, config: str | None) -> dict[str, Any]:
    """The settings of a recipe and of a file, which wins.

    Raises:
        UserError: There is no such recipe, or the file cannot be read.
    """
    settings = {} if recipe is None else read_recipe(recipe)
    return settings if config is None else settings | read_settings(config)


def with_model(
    model: str | None, settings: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a file, with the model of the command line.

    Args:
        model: The user's own, or `None` for that of the file, if any.
        settings: What the files have.
        given: The options on the command line.

    Raises:
        UserError: An option is for --network, and the model is the user's.
    """
    chosen = {**settings} if model is None else {**settings, "model": model}
    refuse_with_own_model(chosen.get("model"), given)
    return chosen
